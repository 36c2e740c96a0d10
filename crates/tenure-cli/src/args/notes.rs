//! What `--help` tells of a command beyond its options.

pub(super) const RUN_NOTES: &str = "\
The program finds TENURE_NAME, TENURE_TOKEN and TENURE_OWNER in its environment. The token grows with every grant of a \
name: hand it to whatever the program writes to, so that a late write can be told from a newer holder's.

A name is one kind of lock. Plain run (also with --fair), --shared with --write, and --permits are different locks: do \
not count on one of them to keep another one out, and use a name for one of them only. Who runs without --fair comes in \
between those who run with it. A program that writes while others only read takes --write, they take --shared; a writer \
that waits holds up the readers that come after it. The number of permits is kept by the store: who takes the first one sets it, \
tenure resize changes it.

The lock is renewed for as long as the program itself runs; processes that it leaves behind run on without the lock. \
The program has a process group of its own, and signals are passed on to it. If renewals fail, the whole group gets \
SIGTERM after two thirds of the lease and SIGKILL before its end. If tenure is killed, so is the group; if it is \
stopped, a second process does what it would have done. Processes that leave the group (daemons, the jobs of an \
interactive shell) are out of reach: only the token stops them. So are those that become another user (sudo, setuid \
programs) under a tenure that is not root's, which is said as soon as it is known; --no-new-privs keeps a program from that. With \
--cgroup all of them get SIGKILL with the group.

TENURE_URL and TENURE_URL_FILE are taken out of the program's environment, because the URL may hold a password; --pass-url \
leaves them there.

With --wait, a store that cannot be reached is tried again for so long; without it, that is reported at once.

Exit status:
  N      the program's own
  128+N  the program died of signal N, or tenure was interrupted by it while it waited
  2      wrong usage
  69     the store cannot be reached, or refuses
  75     the lock is busy, or no permit is free (or what --busy-code says)
  76     the lock was lost, or held for longer than --max-hold, and the program was stopped
  77     the same, but a part of the program runs on as another user, which tenure may not stop
  126    the program cannot be executed
  127    the program was not found

Examples:
  tenure run backup -- pg_dump -f /backup/db.sql
  tenure run --no-wait --busy-code 0 --min-hold 30s nightly -- ./report.sh
  tenure run --shared prices -- ./report.sh       (together with other readers)
  tenure run --write prices -- ./import.sh        (alone, when they are done)
  tenure run --permits 3 exports -- ./export.sh   (three at a time)
  tenure run --fair tickets -- ./sell.sh          (first come, first served)
  tenure run demo -- sh -c 'echo \"token $TENURE_TOKEN\"'";

pub(super) const ELECT_NOTES: &str = "\
The program finds what it finds under tenure run, and TENURE_TERM: the fencing token of this leadership, larger than that \
of every leader before. Pass it to every storage that the program writes to.

If leadership is lost, the program is stopped as under tenure run, and the campaign goes on: the program may be started \
again. It also goes on while the store is away; with --wait it begins when the store is there. When the program ends by itself, leadership is resigned and tenure ends \
with its exit status. A signal ends a campaign; a leader passes it on to the program. A program that was asked to end \
(SIGINT, SIGTERM, SIGQUIT) is not started again.

An election is the lock of its name: tenure who shows the leader, tenure break ends its leadership, and tenure run under \
the same name waits for its end.

Exit status:
  N      the program's own
  128+N  the program died of signal N, or tenure was interrupted by it
  2      wrong usage
  69     the store could not be reached at the start, or refuses
  76     leadership was lost unnoticed before the program ended
  77     leadership was lost, and a part of the program runs on as another user, which tenure may not stop
  126    the program cannot be executed
  127    the program was not found

Examples:
  tenure elect scheduler -- ./scheduler
  tenure elect --value 10.0.0.7:8080 --lease 10s scheduler -- ./scheduler
  tenure who scheduler";
