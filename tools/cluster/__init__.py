"""A whole emulated cluster on loopback: emulated switches, controller, managers, rank processes.

For the demo and for tests; python3 and its standard library only. Everything it starts ends with it:

    with Cluster(Build("build"), Shape(nodes=4, gpus=4, ports=2, dark_ms=25)) as cluster:
        job = cluster.start_job(Play(workload="job.jsonl", iterations=2))
        result = job.wait(timeout_s=60)
        print(cluster.light())

    process.py    one child process, which dies with us
    fabric.py     the shape of a cluster, its fabric file, its port list
    play.py       what rank processes are asked to do, and what came of it
    cluster.py    the daemons and their lives
    variants.py   one job always lit, on demand, provisioned
    picture.py    one rail over one iteration, as SVG
    leftovers.py  what a run left behind
    machine.py    the computer beneath, in a line for pages of results
"""
from .cluster import Build, Cluster, Light
from .fabric import Shape
from .leftovers import Leftovers
from .play import Job, JobFailed, JobResult, Play
from .process import Child, ChildFailed, die_on_signals

__all__ = ["Build", "Child", "ChildFailed", "Cluster", "Job", "JobFailed", "JobResult", "Leftovers", "Light", "Play",
           "Shape", "die_on_signals"]
