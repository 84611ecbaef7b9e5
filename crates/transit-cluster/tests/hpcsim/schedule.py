"""Schedules jobs with hpcsim 0.3.1 (PyPI, MIT) on a cluster of single-GPU nodes and prints their starts.

Reads {"nodes": n, "queue": "fifo" | "greedy" | "easy", "jobs": [[submit_s, run_s, nodes], ...]} on stdin.

Used as it is: hpcsim's cluster, event loop, FIFO order, shadow time and EASY policy. Two things are
bridged. Its "fifo" starts whatever fits (that is "greedy" here), so strict FIFO stops at the first job
that does not fit. And a decision sees the cluster as it was before that decision, so each decision starts
one job and the loop asks again.
"""

import json
import sys

from hpcsim.cluster.cluster import Cluster, ClusterConfig, NodeSpec
from hpcsim.cluster.hardware import GPUType
from hpcsim.scheduler.backfill import BackfillWrapper, EASYBackfillPolicy
from hpcsim.scheduler.schedulers import FIFOScheduler, SchedulingDecision
from hpcsim.simulator.engine import SimulationEngine
from hpcsim.workload.job import TrainingJob


def first(decision):
    one = SchedulingDecision()
    one.allocations.extend(decision.allocations[:1])
    return one


class Greedy(FIFOScheduler):
    name = "greedy_one"

    def schedule(self, pending, running, now):
        return first(super().schedule(pending, running, now))


class Strict(FIFOScheduler):
    name = "strict_one"

    def schedule(self, pending, running, now):
        decision = SchedulingDecision()
        for job in self._iter_fifo(pending):
            found = self._find_resources(job)
            if found:
                decision.add(job, *found)
            break
        return decision


class Easy(BackfillWrapper):
    name = "easy_one"

    def schedule(self, pending, running, now):
        return first(super().schedule(list(pending.iter_fifo()), running, now))


class Engine(SimulationEngine):
    def _do_schedule(self, now):
        before = None
        while self._pending and before != len(self._pending):
            before = len(self._pending)
            super()._do_schedule(now)


def main():
    asked = json.load(sys.stdin)
    spec = NodeSpec(gpu_type=GPUType.A100, num_nodes=asked["nodes"], gpus_per_node=1)
    cluster = Cluster(ClusterConfig("nodes", nodes=[spec]))
    scheduler = {"fifo": Strict, "greedy": Greedy}.get(asked["queue"], Strict)(cluster)
    if asked["queue"] == "easy":
        scheduler = Easy(scheduler, EASYBackfillPolicy())
    jobs = []
    for number, (submit, run, nodes) in enumerate(asked["jobs"]):
        # Without a model a job does one iteration per GPU and second.
        job = TrainingJob(
            job_id=str(number),
            submit_time=float(submit),
            num_gpus_requested=nodes,
            num_iterations=run * nodes,
            arch=None,
        )
        job.requested_runtime = run
        jobs.append(job)
    # It samples metrics every few seconds until then.
    last = max(job.submit_time for job in jobs) + sum(run for _, run, _ in asked["jobs"])
    Engine(cluster, scheduler, jobs, max_sim_time=last + 1).run()
    print(json.dumps([job.start_time for job in jobs]))


main()
