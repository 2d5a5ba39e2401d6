# SPDX-License-Identifier: Apache-2.0
"""
Faults on purpose: `python -m horovod.chaos` starts jobs, hurts them, and checks that the worst is an error.

A *job* is a chain of *rounds*. In a round some processes are the ranks of one Horovod generation and run random
operations whose results are known beforehand; some of them are killed, stopped, cut off and so on. Whoever survives
goes on to the next round, together with new processes. docs/operate/chaos.md has the table of faults and what is
checked.

Who does what: `__main__` reads the command line, `fleet` keeps several `runner`s busy, each of which is a process that
runs one job after the other and keeps a `watch` on each round. `plan` decides from the seed what happens in a job,
`worker` is one rank, which hurts itself by `inject` while `workload` runs `operations`, `verdict` says what was wrong
with a round, and `report` adds up. `soak` is the mode without faults. `system` has what Python does not give:
namespaces, death signals and so on.
"""
