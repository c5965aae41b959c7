#!/usr/bin/env python3
"""A real vLLM engine that is trained into: a tiny Llama under FSDP2 and tensor parallelism on four ranks, updates through the
backend "reshard", and after each of them the same tokens and log probabilities as an engine that was started from the
trainer's weights.

Runs in an environment that has vLLM, for whose PyTorch reshard was built: tools/vllm.sh makes one.
"""

import collections
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from multiprocessing.connection import Client
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import transformers  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module  # noqa: E402

HERE = Path(__file__).resolve()
WORLD = 4
KILLS = int(os.environ.get("RESHARD_TEST_KILLS", "4"))
SEED = int(os.environ.get("RESHARD_TEST_SEED", "1"))
SIZES = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
             vocab_size=128, max_position_embeddings=64, bos_token_id=1, eos_token_id=2)  # fmt: skip


class Server:
    """What the trainer says to the engine: vLLM's own four calls, and questions."""

    def __init__(self, address):
        self._address = address
        self._connection = None

    def ask(self, *request):
        if self._connection is None:
            self._connection = Client(self._address, "AF_UNIX")
        self._connection.send(request)
        kind, answer = self._connection.recv()
        if kind == "error":
            raise RuntimeError(answer)
        return answer

    def init_weight_transfer_engine(self, init_info):
        self.ask("init_weight_transfer_engine", init_info)

    def start_weight_update(self):
        self.ask("start_weight_update")

    def update_weights(self, update_info):
        self.ask("update_weights", update_info)

    def finish_weight_update(self, weight_version=None):
        self.ask("finish_weight_update")


def model_of(kind):
    torch.manual_seed(1)
    config = transformers.CONFIG_MAPPING[kind](**SIZES, **({"num_local_experts": 4, "num_experts_per_tok": 2} if kind == "mixtral" else {}))
    return transformers.AutoModelForCausalLM.from_config(config).to(torch.bfloat16)


def change(model, step):
    """An update that every rank can make of its own shards alone, so that all know the whole."""
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
            local.mul_(1 + (step + 1) * (number % 3) / 8)


def end_in(seconds, processes):
    """These processes are killed so much later, or not if nobody gets that far."""

    def kill():
        time.sleep(seconds)
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()


def train(folder, kind, updates, workers, victim, delay):
    """A victim, a rank or the server, is killed so many seconds after the last update began."""
    from vllm.distributed import weight_transfer

    import reshard.vllm

    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=WORLD)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    model = model_of(kind)
    plan = {f"self_attn.{name}_proj": ColwiseParallel() for name in "qkv"} | {"self_attn.o_proj": RowwiseParallel()}
    if kind == "llama":
        plan |= {"mlp.gate_proj": ColwiseParallel(), "mlp.up_proj": ColwiseParallel(), "mlp.down_proj": RowwiseParallel()}
    for layer in model.model.layers:
        parallelize_module(layer, mesh["tp"], plan)
        fully_shard(layer, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    reshard.vllm.register()
    server = Server(f"{folder}/socket")
    info = reshard.vllm.TrainerInfo(rank=rank, trainers=WORLD, workers=workers, host="127.0.0.1")
    source = reshard.vllm.Source(model)
    # vLLM 0.25 has no factory for trainers.
    trainers = getattr(weight_transfer, "WeightTransferTrainerFactory", reshard.vllm.Transfer)
    trainer = trainers.trainer_init(info, client=server, source=source)
    versions, answers = [], []
    for step in range(updates):
        change(model, step)
        if step == updates - 1 and victim is not None:
            dist.barrier()
            if victim == "server" and rank == 0:
                end_in(delay, [int(Path(f"{folder}/server").read_text("utf-8"))])
            elif victim == str(rank):
                end_in(delay, [os.getpid()])
            try:
                trainer.send_weights()
            except Exception as error:
                Path(f"{folder}/error{rank}").write_text(f"{type(error).__name__}: {error}", encoding="utf-8")
            time.sleep(0.5)  # a victim that was done is killed all the same
            os._exit(0)
        versions.append(trainer.send_weights(changed_only=step > 2))
        whole = {name: getattr(tensor, "full_tensor", lambda t=tensor: t)() for name, tensor in source.tensors.items()}
        if rank == 0:
            alone = model_of(kind)
            alone.load_state_dict(whole)
            alone.save_pretrained(f"{folder}/step{step}")
            answers.append(server.ask("generate"))
    assert versions == list(range(1, updates + 1)), versions
    timings = trainer.refit.timings()
    ranks = trainer.refit.explain()["ranks"]
    assert all(one["received_bytes"] == one["received_bytes_bound"] for one in ranks), ranks
    if rank == 0:
        Path(f"{folder}/answers").write_text(json.dumps(answers), encoding="utf-8")
        print("server received", [one["received_bytes"] for one in ranks[WORLD:]], "of", sum(t.numel() * 2 for t in whole.values()))
        print({key: round(value, 4) for key, value in timings.items() if isinstance(value, float)})
    trainer.shutdown()
    dist.barrier()
    os._exit(0)


def publish(folder, step):
    """What a trainer has after that step, for servers, and as a model for an engine that is started from it."""
    import reshard

    model = model_of("llama")
    change(model, step)
    model.save_pretrained(f"{folder}/step{step}")
    print(reshard.publish(f"{folder}/published", model, version=step + 1))


class Engines(unittest.TestCase):
    @contextlib.contextmanager
    def server(self, folder, kind, size):
        """Its log, while it runs; whatever fails meanwhile is said with the end of the log."""
        model_of(kind).save_pretrained(f"{folder}/model")
        with open(f"{folder}/server.log", "w+", encoding="utf-8") as log:
            command = [sys.executable, str(HERE.parent / "serve.py"), f"{folder}/socket", f"{folder}/model", str(size)]
            server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
            Path(f"{folder}/server").write_text(str(server.pid), encoding="utf-8")
            try:
                deadline = time.monotonic() + 240
                while not os.path.exists(f"{folder}/socket"):
                    assert server.poll() is None and time.monotonic() < deadline, "the server did not start"
                    time.sleep(0.2)
                yield log
            except BaseException as error:
                log.seek(0)
                raise AssertionError(f"{error}; the server:\n{log.read()[-6000:]}") from error
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(server.pid, signal.SIGKILL)
                server.wait()

    def trained(self, folder, kind, updates, size, victim=None, delay=0.0):
        """Exit codes of the trainers."""
        Path(f"{folder}/ranks").unlink(missing_ok=True)
        last = [] if victim is None else [str(victim), str(delay)]
        trainers = [
            subprocess.Popen(
                [sys.executable, str(HERE), "train", folder, kind, str(updates), str(size), *last],
                env=os.environ | {"RANK": str(rank), "OMP_NUM_THREADS": "1", "RESHARD_TIMEOUT_MS": "20000"},
            )
            for rank in range(WORLD)
        ]
        return [trainer.wait(300) for trainer in trainers]

    def answers(self, folder, models, log, size=1):
        """Of engines that are started from these models."""
        return self.said(folder, "answers", [str(size), *models], log)

    def said(self, folder, how, arguments, log):
        command = [sys.executable, str(HERE.parent / "serve.py"), how, f"{folder}/wanted", *arguments]
        subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=True)
        return json.loads(Path(f"{folder}/wanted").read_text("utf-8"))

    def run_jobs(self, kind, updates, size):
        with tempfile.TemporaryDirectory() as folder, self.server(folder, kind, size) as log:
            self.assertEqual(self.trained(folder, kind, updates, size), [0] * WORLD)
            models = [f"{folder}/step{step}" for step in range(updates)]
            # On CPUs vLLM 0.32 does not reach all that its kernels keep of a mixture of experts when it reloads: what an
            # engine says that reloads the same from disk is not what a fresh one says.
            if kind == "llama":
                wanted = self.answers(folder, models, log, size)
            else:
                wanted = self.said(folder, "reloads", [f"{folder}/model", *models], log)
            said = json.loads(Path(f"{folder}/answers").read_text("utf-8"))
            self.assertEqual(len({str(answer) for answer in wanted}), updates, "updates that say the same show nothing")
            for step in range(updates):
                self.assertEqual(said[step], wanted[step], f"step {step}")

    def test_llama(self):
        self.run_jobs("llama", 5, 1)

    def test_mixtral(self):
        self.run_jobs("mixtral", 2, 1)

    def test_two_workers(self):
        self.run_jobs("llama", 2, 2)

    def test_servers_that_come_later(self):
        with tempfile.TemporaryDirectory() as folder, open(f"{folder}/log", "w+", encoding="utf-8") as log:
            model_of("llama").config.save_pretrained(f"{folder}/model")  # no weights are there
            publishes = [[sys.executable, str(HERE), "publish", folder, str(step)] for step in range(5)]
            told = dict(stdout=log, stderr=subprocess.STDOUT, check=True)
            subprocess.run(publishes[0], **told)
            last = 0
            for size in (1, 2):
                commands = [" ".join(command) for command in publishes[last + 1 : last + 3]]
                command = [sys.executable, str(HERE.parent / "serve.py"), "pulls", f"{folder}/said", f"{folder}/model", f"{folder}/published"]
                try:
                    subprocess.run([*command, str(size), *commands], **told)
                except subprocess.CalledProcessError as error:
                    log.seek(0)
                    raise AssertionError(f"{error}:\n{log.read()[-6000:]}") from error
                said, versions = json.loads(Path(f"{folder}/said").read_text("utf-8"))
                self.assertEqual(versions, [[None] * size, [last + 2] * size, [last + 3] * size])
                wanted = self.answers(folder, [f"{folder}/step{step}" for step in range(last, last + 3)], log, size)
                for step, answer in enumerate(said):
                    self.assertEqual(answer, wanted[step], f"{size} workers, step {step}")
                last += 2

    def test_killed_trainers_leave_old_or_new_weights(self):
        draw = random.Random(SEED)
        outcomes = collections.Counter()
        with tempfile.TemporaryDirectory() as folder, self.server(folder, "llama", 1) as log:
            self.assertEqual(self.trained(folder, "llama", 2, 1), [0] * WORLD)
            old, new = self.answers(folder, [f"{folder}/step0", f"{folder}/step1"], log)
            for kill in range(KILLS):
                victim, delay = draw.randrange(WORLD), draw.uniform(0, 0.02)
                for rank in range(WORLD):
                    Path(f"{folder}/error{rank}").unlink(missing_ok=True)
                codes = self.trained(folder, "llama", 2, 1, victim, delay)
                wanted = [-signal.SIGKILL if rank == victim else 0 for rank in range(WORLD)]
                self.assertEqual(codes, wanted, f"seed {SEED}, kill {kill}: rank {victim} after {delay:.4f} s")
                said = Server(f"{folder}/socket").ask("generate")
                self.assertIn(said, (old, new), f"seed {SEED}, kill {kill}: rank {victim} after {delay:.4f} s")
                errors = [path.read_text("utf-8") for path in Path(folder).glob("error*")]
                if said == old:
                    self.assertEqual(len(errors), WORLD - 1, errors)
                if victim:  # rank 0 serves the store
                    for error in errors:
                        self.assertIn(f"rank {victim}", error)
                outcomes["old" if said == old else "new"] += 1
        print(f"seed {SEED}: {KILLS} trainers killed, then the engine has {dict(outcomes)}")

    def test_a_killed_server_is_named(self):
        with tempfile.TemporaryDirectory() as folder, self.server(folder, "llama", 1):
            self.trained(folder, "llama", 2, 1, "server", 0.005)
            errors = [path.read_text("utf-8") for path in sorted(Path(folder).glob("error*"))]
        self.assertEqual(len(errors), WORLD)
        for error in errors:
            self.assertRegex(error, "rank 4|EOFError|ConnectionReset")


if __name__ == "__main__":
    if sys.argv[1:2] == ["train"]:
        victim, delay = sys.argv[6:8] if len(sys.argv) > 6 else (None, "0")
        train(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), victim, float(delay))
    elif sys.argv[1:2] == ["publish"]:
        publish(sys.argv[2], int(sys.argv[3]))
    else:
        unittest.main()
