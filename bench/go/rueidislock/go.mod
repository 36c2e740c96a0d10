module tenure/rueidislock

go 1.26.0

require (
	github.com/redis/rueidis v1.0.79
	github.com/redis/rueidis/rueidislock v1.0.79
	tenure/driver v0.0.0
)

replace tenure/driver => ../
