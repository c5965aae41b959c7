#!/usr/bin/env python3
"""What is left of a group once it has been destroyed, and of a process: nothing that torch alone does not leave.

    ends_of_groups_test.py                       # the tests
    ends_of_groups_test.py jobs 200 reshard      # so many short jobs, and how many of them ended with 0
    ends_of_groups_test.py jobs 200 torch        # the same without this library's calls
    ends_of_groups_test.py jobs 200 torch fsdp   # with FSDP2
"""

import collections
import datetime
import gc
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard

import gloo
from checks import ChecksTest, main

WORLD = 4
OPS = torch.ops.reshard
JOBS = 10


def kept():
    """This process's threads by name, and what its descriptors are."""
    gc.collect()
    threads = collections.Counter()
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/comm") as comm:
            threads[comm.read().strip()] += 1
    descriptors = collections.Counter()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            descriptors[os.readlink(f"/proc/self/fd/{descriptor}").split(":[")[0]] += 1  # without the socket's number
        except FileNotFoundError:
            pass  # the one that listed them
    return dict(threads), dict(descriptors)


def on_ranks(ranks, placement=Shard(0), rows=8):
    """A DTensor whose mesh goes when it does."""
    mesh = DeviceMesh("cpu", ranks)
    local = torch.ones(rows // len(ranks), 4) if dist.get_rank() in ranks else torch.empty(0, 4)
    return DTensor.from_local(local, mesh, [placement], run_check=False, shape=torch.Size((rows, 4)), stride=(4, 1))


# Each by this library (ours) or by torch alone, in the same kind of group.


def use_default_group(ours, keep):
    if ours:
        OPS.all_gather(torch.ones(4), 0, gloo.world_name())
    else:
        dist.all_gather([torch.empty(4) for _ in range(dist.get_world_size())], torch.ones(4))


def use_subgroups(ours, keep):
    for ranks in ([0, 1], [2, 3], [3, 2, 1, 0]):
        group = dist.new_group(ranks)
        if dist.get_rank() not in ranks:
            continue
        if ours:
            OPS.all_reduce(torch.ones(4), "sum", group.group_name)
        else:
            dist.all_reduce(torch.ones(4), group=group)


def use_mesh(ours, keep):
    import reshard

    dtensor = on_ranks(list(range(WORLD)))
    if ours:
        reshard.redistribute(dtensor, placements=[Replicate()])
        reshard.redistribute_all([dtensor] * 2, None, [Shard(1)])
    else:
        dist.all_gather([torch.empty(2, 4) for _ in range(WORLD)], torch.ones(2, 4), dtensor.device_mesh.get_group())


def use_kept_mesh(ours, keep):
    """The mesh keeps its groups beyond their end; nothing of this library does."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    keep.append(mesh)
    if ours:
        OPS.all_reduce(torch.ones(4), "sum", mesh["a"].get_group().group_name)
        OPS.all_reduce(torch.ones(4), "sum", gloo.world_name())
    else:
        dist.all_reduce(torch.ones(4), group=mesh["a"].get_group())
        dist.all_reduce(torch.ones(4))


def use_made_group(ours, keep):
    """Between two meshes: a group of the ranks of both is made on the way."""
    import reshard

    source = on_ranks([0, 1])
    target = DeviceMesh("cpu", [1, 2])
    if ours:
        reshard.redistribute(source, target, [Shard(1)])
        reshard.redistribute(source, target, [Shard(0)])
    else:
        both = dist.new_group([0, 1, 2])
        if dist.get_rank() < 3:
            dist.all_reduce(torch.ones(4), group=both)


def use_bound_batch(ours, keep):
    """Kept, as a trainer keeps it."""
    import reshard

    if ours:
        layouts = ["[<X>8, 4]"], ["[8, 4]"]
        keep.append(reshard.bind([torch.ones(2, 4)], [torch.empty(8, 4)], f"{{X:{WORLD}}}", *layouts))
        keep[-1].run()
    else:
        dist.all_gather([torch.empty(2, 4) for _ in range(WORLD)], torch.ones(2, 4))


def use_state(ours, keep):
    import reshard

    state = {"w": on_ranks(list(range(WORLD))), "step": 1}
    with tempfile.TemporaryDirectory() as folder:
        shared = [folder]
        dist.broadcast_object_list(shared)
        if ours:
            reshard.save(shared[0] + "/saved", state)
            reshard.load(shared[0] + "/saved", state)
        dist.barrier()


USES = (use_default_group, use_subgroups, use_mesh, use_kept_mesh, use_made_group, use_bound_batch, use_state)


def meet(rank, world, folder, name):
    """A barrier without a group."""
    open(f"{folder}/{name}{rank}", "w").close()
    while not all(os.path.exists(f"{folder}/{name}{other}") for other in range(world)):
        time.sleep(0.01)


def left_by(rank, world, folder, use, ours):
    keep = []
    use(ours, keep)
    dist.destroy_process_group()
    meet(rank, world, folder, f"destroyed{ours}")
    left = kept()
    meet(rank, world, folder, f"counted{ours}")  # a rank that leaves closes the connections of others
    return left


def check_one_group(c):
    """One group is destroyed; the others go on."""
    use_default_group(True, None)
    dist.barrier()
    before = kept()
    pair = dist.new_group([0, 1])
    if c.rank < 2:
        OPS.all_reduce(torch.ones(4), "sum", pair.group_name)
        dist.destroy_process_group(pair)
    del pair
    after = kept()
    c.true("nothing is left", before == after, (before, after))
    c.run("the default group", lambda: OPS.all_reduce(torch.ones(4), "sum", c.group))


def again(c, folder, number):
    dist.destroy_process_group()
    store = f"file://{folder}/again{number}"
    limit = datetime.timedelta(seconds=30)
    dist.init_process_group("gloo", init_method=store, rank=c.rank, world_size=c.world, timeout=limit)


def check_same_names_again(c, folder):
    """Groups of the same names, one after the other, while meshes and bound batches of before are still there."""
    import reshard

    old = []
    for number in range(3):
        dtensor = on_ranks(list(range(c.world)))
        got = c.run("redistribute", lambda: reshard.redistribute(dtensor, placements=[Replicate()]))
        c.equal("redistribute", got.to_local(), torch.ones(8, 4))
        part, target = on_ranks([0, 1]), DeviceMesh("cpu", [1, 2])
        got = c.run("over a group that is made", lambda: reshard.redistribute(part, target, [Shard(0)]))
        c.equal("over a group that is made", got.to_local(), torch.ones(4, 4) if c.rank in (1, 2) else torch.ones(0, 0))
        for batch in old:
            c.raises("a batch of before", batch.run, "destroyed")
        layouts = ["[<X>8, 4]"], ["[8, 4]"]
        batch = reshard.bind([torch.ones(2, 4)], [torch.empty(8, 4)], f"{{X:{c.world}}}", *layouts)
        c.run("a batch", batch.run)
        old += [batch] if number != 1 else []
        meshes = [dtensor, part, target] if number == 0 else []  # kept in the first round only
        dist.barrier()
        again(c, folder, number)
    del meshes


def check_warmup(c, folder):
    """Once for a group and a device, not for what had the group's name before."""
    import reshard

    for number in range(2):
        reshard.warmup("meta")
        c.true("another device", not reshard.recent_operations(), reshard.recent_operations())
        reshard.warmup()
        done = len(reshard.recent_operations())
        c.true("warm", done > 0)
        reshard.warmup(torch.device("cpu"))
        c.true("once", len(reshard.recent_operations()) == done)
        dist.barrier()
        again(c, folder, number)


# Short jobs.


def start(rank, world, folder):
    limit = datetime.timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world, timeout=limit)


def job(rank, world, folder, ours, fsdp):
    """A checkpoint is loaded, whole tensors are wanted, and that was all.

    A thread of Gloo keeps the tensors of a collective until it is done, and waits for the interpreter's lock then, to
    let go of them. destroy_process_group waits for that thread where it ends the group. Where somebody holds the group,
    the interpreter may end while the thread waits for its lock; that ends the thread, in the middle of a destructor,
    which aborts the process.

    With FSDP2 and DTensor.full_tensor torch itself holds the group, so that such jobs abort now and then without this
    library, too. Without them none does, though the last collective is still under way when the group is destroyed.
    """
    start(rank, world, folder)
    if fsdp:
        mesh = init_device_mesh("cpu", (world,))
        model = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.Linear(32, 8))
        fully_shard(model, mesh=mesh)
        state = model.state_dict()
    else:
        state = {"0.weight": on_ranks(list(range(world)), rows=32)}
    if ours:
        import reshard

        reshard.load(os.path.dirname(folder) + "/saved", {"model": state})
        reshard.redistribute(state["0.weight"], placements=[Replicate()])
    else:
        dcp.load({"model": state}, checkpoint_id=os.path.dirname(folder) + "/saved")
    if fsdp:
        for tensor in state.values():
            tensor.full_tensor()
    else:
        local = state["0.weight"].to_local()
        if rank == 1:
            time.sleep(0.1)
        dist.all_gather_into_tensor(torch.empty(world * len(local), 4), local.clone(), async_op=True)
    dist.destroy_process_group()
    # Python code that hands the lock to nobody, up to the end.
    sys.setswitchinterval(1000)
    over = time.monotonic() + (0 if fsdp else 0.4)
    while time.monotonic() < over:
        pass


def save(rank, world, folder, *_):
    start(rank, world, folder)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.Linear(32, 8))
    dcp.save({"model": model.state_dict()}, checkpoint_id=os.path.dirname(folder) + "/saved")
    dist.barrier()


def run_to_the_end(function, folder, *arguments, world=2):
    """The exit codes of ranks that end as a script does: with the interpreter, and all that C++ has to destroy."""
    os.mkdir(folder)
    ranks = []
    for rank in range(world):
        ranks.append(os.fork())
        if ranks[-1] == 0:
            try:
                function(rank, world, folder, *arguments)
            except Exception:
                traceback.print_exc()
                os._exit(3)
            sys.exit(0)
    return tuple(os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) for rank in ranks)


def run_jobs(count, ours, fsdp):
    """Prints how many jobs ended with 0 on all ranks. Not from a test runner, which would catch the ranks' exits."""
    if ours:
        gloo.load_library()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    root = tempfile.mkdtemp(prefix="reshard-jobs-")  # not as a context, which every rank would leave, too
    assert run_to_the_end(save, f"{root}/saving") == (0, 0)
    codes = collections.Counter(run_to_the_end(job, f"{root}/{number}", ours, fsdp) for number in range(count))
    shutil.rmtree(root)
    print(f"{codes[0, 0]} of {count} jobs ended with 0; all: {dict(codes)}")
    sys.exit(codes[0, 0] != count)


class EndsOfGroupsTest(ChecksTest):
    def test_threads_and_descriptors(self):
        import reshard.torch  # noqa: F401, before the forks

        for use in USES:
            with self.subTest(use=use.__name__), tempfile.TemporaryDirectory() as folder:
                ours = gloo.values(gloo.run_ranks(WORLD, left_by, folder, use, True))
                torchs = gloo.values(gloo.run_ranks(WORLD, left_by, folder, use, False))
                self.assertEqual(torchs, ours)
                ChecksTest.checks += WORLD

    def test_imported_after_the_group(self):
        """A script that imports the library when it first uses it: the group's threads end with the group all the same."""
        script = """
import os
import torch, torch.distributed as dist, reshard
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
reshard.bind([torch.ones(4)], [torch.ones(4)], "{X:1}", ["[4]"], ["[4]"]).run()
threads = lambda: [open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")]
before = threads()
dist.destroy_process_group()
print("pt_gloo_runloop" in before, "pt_gloo_runloop" in threads())
"""
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
        self.assertEqual("True False\n", done.stdout, done.stderr[-4000:])
        ChecksTest.checks += 1

    def test_one_group(self):
        self.on_ranks(WORLD, [check_one_group])

    def test_again(self):
        with tempfile.TemporaryDirectory() as folder:
            self.on_ranks(WORLD, [check_same_names_again], folder)

    def test_warmup(self):
        with tempfile.TemporaryDirectory() as folder:
            self.on_ranks(2, [check_warmup], folder)

    def test_short_jobs(self):
        command = [sys.executable, os.path.abspath(__file__), "jobs", str(JOBS), "reshard"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        self.assertEqual(0, done.returncode, done.stdout[-2000:] + done.stderr[-4000:])
        ChecksTest.checks += JOBS


if __name__ == "__main__":
    if sys.argv[1:2] == ["jobs"]:
        run_jobs(int(sys.argv[2]), "reshard" in sys.argv, "fsdp" in sys.argv)
    main("ends of groups")
