-- What a shop keeps. An item that many want at once has several segments, each with a lock of its own.
CREATE TABLE IF NOT EXISTS stock (
  item text NOT NULL,
  segment int NOT NULL,
  units int NOT NULL,
  fence bigint NOT NULL DEFAULT 0, -- the largest token that has touched this row
  PRIMARY KEY (item, segment)
);

CREATE TABLE IF NOT EXISTS sales (
  order_id text NOT NULL,
  item text NOT NULL,
  segment int NOT NULL,
  token text NOT NULL
);
