//! The text that `tenure lab --help` prints after the options.

pub(crate) const HELP: &str = "\
Each story is one failure. It is played in the naive way (what one is warned of), in the usual way (what common libraries \
do) and with Tenure, each on Redis servers, a shop in SQLite and processes of its own, which are really killed and stopped. \
Each takes a few seconds; the servers are gone afterwards. What is said of each way is checked.

Columns:
  SOLD      units sold, of those that there were
  OVERSOLD  units sold and not there: sold less stock, or 0
  STALE     stale writes accepted: writes that the shop took from somebody whose grant was older
            than that of somebody else who had been granted the lock before that write
  WAITED    how long all together waited for the lock
  REQUESTS  commands that clients sent to the servers, as the servers saw them; neither greetings
            nor what scripts did inside. A client of Tenure says once who it is, and sends scripts
            that the server does not know yet

Exit status:
  0   all is as claimed: with Tenure, no unit was sold twice, and no stale write got through;
      a story that needs what is not installed (F12: cc) says that it was SKIPPED
  1   something is not as claimed, or a story could not be played
  2   wrong usage
  69  there is no redis-server

Examples:
  tenure lab ls
  tenure lab
  tenure lab F1 f13
  tenure lab --html failures.html";
