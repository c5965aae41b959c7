#!/usr/bin/env python3
"""Models of transformers and adapters of PEFT, trained for one step with AdamW and a MultiStepLR, alone, under FSDP2 and
under FSDP2 over tensor parallelism, and saved by DCP, torch.save, accelerate and Lightning: `reshard convert SRC OUT --to hf`
without another flag gives what from_pretrained loads, with equal logits.

usage: trained_test.py COMMAND [WORD...]     only the cases whose names have all of the words
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import types
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TORCH_LOGS"] = "-all"
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
import accelerate
import lightning
import peft
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import transformers
from accelerate.utils.fsdp_utils import save_fsdp_model
from torch.distributed.checkpoint.state_dict import (StateDictOptions, get_model_state_dict, get_optimizer_state_dict,
                                                     get_state_dict)
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import StateDictType, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
torch.set_num_threads(1)

TINY = dict(hidden_size=32, intermediate_size=48, moe_intermediate_size=24, shared_expert_intermediate_size=24,
            num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=64, num_experts=4, num_experts_per_tok=2,
            max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
WORDS = torch.arange(12)[None]
TENSOR_PARALLEL = {
    ColwiseParallel: ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"),
    RowwiseParallel: ("self_attn.o_proj", "mlp.down_proj"),
}


def tiny(kind: str, **more: object) -> torch.nn.Module:
    """A model that is not trained."""
    known = transformers.CONFIG_MAPPING[kind]().to_dict()
    config = transformers.CONFIG_MAPPING[kind](**{k: v for k, v in (TINY | more).items() if k in known})
    torch.manual_seed(0)  # the same numbers in every process
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.config.architectures = [type(model).__name__]
    return model


def train(model: torch.nn.Module) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    """One step."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[1, 5])
    model(WORDS, labels=WORDS).loss.backward()
    optimizer.step()
    scheduler.step()
    return optimizer, scheduler


def logits(model: torch.nn.Module) -> torch.Tensor:
    """What the model answers."""
    with torch.no_grad():
        return model.eval()(WORDS).logits


class Saver:
    """Makes the folders of cases, each with the config of the model in it, as users copy it, and its logits beside."""

    def __init__(self, folder: pathlib.Path, name: str, config: object, wanted: torch.Tensor | None):
        """`wanted` is None on the ranks that do not know it."""
        self.folder, self.name, self.config, self.wanted = folder, name, config, wanted

    def source(self, form: str, below: str = ".") -> pathlib.Path:
        """The folder to save a checkpoint in; all ranks may ask. The config goes into a folder `below` it."""
        source = self.folder / f"{self.name}, {form}" / "source"
        (source / below).mkdir(parents=True, exist_ok=True)
        if self.wanted is not None:
            self.config.save_pretrained(source / below)
            torch.save(self.wanted, source.parent / "logits")
        return source

    def both_forms(self, state: object) -> None:
        """A case for each form of torch.save."""
        torch.save(state, self.source("torch.save") / "checkpoint.pt")
        first = self.source("torch.save of the first form") / "checkpoint.pt"
        torch.save(state, first, _use_new_zipfile_serialization=False)


class App(Stateful):
    """Of PyTorch's tutorial on DCP."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer):
        self.model, self.optimizer = model, optimizer

    def state_dict(self) -> dict[str, object]:
        """Model and optimizer under the tutorial's keys."""
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optim": optimizer}


def save_sharded(rank: int, world: int, folder: pathlib.Path, kind: str, tensor_parallel: bool) -> None:
    """A model that is trained on these ranks, as people save it."""
    model = tiny(kind)
    sizes = (world // 2, 2) if tensor_parallel else (world,)
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("dp", "tp")[: len(sizes)])
    if tensor_parallel:
        plan = {f"model.layers.*.{name}": style() for style, names in TENSOR_PARALLEL.items() for name in names}
        parallelize_module(model, mesh["tp"], plan)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    optimizer, scheduler = train(model)
    whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
    full = get_model_state_dict(model, options=whole)
    full_optimizer = get_optimizer_state_dict(model, optimizer, options=whole)
    name = f"{kind}, {'FSDP2 x TP' if tensor_parallel else 'FSDP2'}"
    saver = Saver(folder, name, model.config, None)
    if rank == 0:
        alone = tiny(kind)
        alone.load_state_dict(full)
        saver.wanted = logits(alone)
        saver.both_forms({"model": full, "optimizer": full_optimizer, "lr_scheduler": scheduler.state_dict(), "step": 1})

    state, optimizer_state = get_state_dict(model, optimizer)
    dcp.save({"model": state, "optimizer": optimizer_state, "lr_scheduler": scheduler.state_dict(), "step": 1},
             checkpoint_id=saver.source("DCP"))
    dcp.save({"app": App(model, optimizer)}, checkpoint_id=saver.source("DCP of the tutorial"))
    # As Lightning's ModelParallelStrategy, which wants GPUs.
    lightning = saver.source("DCP of Lightning")
    dcp.save({"state_dict": {f"model.{key}": value for key, value in state.items()}, "optimizer_0": optimizer_state},
             checkpoint_id=lightning)
    if rank == 0:
        torch.save({"pytorch-lightning_version": "2.6.6", "global_step": 1, "lr_schedulers": [scheduler.state_dict()]},
                   lightning / "meta.pt")
    # As verl.
    parts = saver.source("rank files")
    torch.save(model.state_dict(), parts / f"model_world_size_{world}_rank_{rank}.pt")
    torch.save(optimizer.state_dict(), parts / f"optim_world_size_{world}_rank_{rank}.pt")
    rng = {"cpu": torch.get_rng_state(), "random": (3, (1, 2), None)}
    torch.save({"lr_scheduler": scheduler.state_dict(), "rng": rng},
               parts / f"extra_state_world_size_{world}_rank_{rank}.pt")
    # Accelerate's own code; its Accelerator wants GPUs.
    accelerate.PartialState()  # for its log
    accelerator = types.SimpleNamespace(process_index=rank, num_processes=world, is_main_process=rank == 0,
                                        wait_for_everyone=dist.barrier, is_fsdp2=True)
    plugin = types.SimpleNamespace(fsdp_version=2, state_dict_type=StateDictType.SHARDED_STATE_DICT,
                                   state_dict_config=None, optim_state_dict_config=None, cpu_ram_efficient_loading=False)
    save_fsdp_model(plugin, accelerator, model, str(saver.source("accelerate's DCP", "pytorch_model_fsdp_0")))
    save_fsdp_model(plugin, accelerator, model, str(saver.source("accelerate's rank files")), use_dcp=False)


def adapted() -> torch.nn.Module:
    """A tiny Llama, which is frozen, with a LoRA adapter that is not trained."""
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
    return peft.get_peft_model(tiny("llama"), config)


def of_adapter(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """What scripts select."""
    return {name: tensor for name, tensor in state.items() if "lora_" in name}


def save_sharded_adapter(rank: int, world: int, folder: pathlib.Path) -> None:
    """An adapter that is trained under FSDP2, as people save it."""
    model = adapted()
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("dp",))
    for layer in model.base_model.model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer, scheduler = train(model)
    full = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    saver = Saver(folder, "adapter, FSDP2", model.peft_config["default"], None)
    if rank == 0:
        alone = adapted()
        alone.load_state_dict(full)
        saver.wanted = logits(alone)
    state, optimizer_state = get_state_dict(model, optimizer)
    dcp.save({"model": of_adapter(state), "optimizer": optimizer_state, "lr_scheduler": scheduler.state_dict()},
             checkpoint_id=saver.source("DCP"))
    torch.save(of_adapter(model.state_dict()), saver.source("rank files") / f"model_world_size_{world}_rank_{rank}.pt")


def rank_of_job(rank: int, world: int, folder: pathlib.Path, kinds: list[tuple[str, bool]]) -> None:
    """A process of a job."""
    # A forked process makes its pool of threads anew at the first such call, and PyTorch does not do it under a lock.
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store{world}", world)
    dist.init_process_group("gloo", rank=rank, world_size=world, store=store)
    for kind, tensor_parallel in kinds:
        save_sharded(rank, world, folder, kind, tensor_parallel)
    if world == 2:
        save_sharded_adapter(rank, world, folder)
    dist.barrier()
    # A rank that ends closes its connections, also to one that is still in the barrier.
    store.set(f"rank {rank} has come through", "")
    store.wait([f"rank {other} has come through" for other in range(world)])
    os._exit(0)  # Gloo sometimes aborts at interpreter exit


def save_alone(folder: pathlib.Path, kind: str) -> None:
    """A model that one process trains with accelerate, and one with Lightning."""
    model = tiny(kind)
    accelerator = accelerate.Accelerator(cpu=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[1, 5])
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    accelerator.backward(model(WORDS, labels=WORDS).loss)
    optimizer.step()
    scheduler.step()
    saver = Saver(folder, f"{kind}, accelerate", model.config, logits(model))
    accelerator.save_state(str(saver.source("save_state")))
    accelerator.save_state(str(saver.source("save_state with torch.save")), safe_serialization=False)
    accelerator.save_model(model, str(saver.source("save_model")), max_shard_size="40KB")
    whole = saver.source("the Trainer's folder")  # of transformers
    model.save_pretrained(whole)
    torch.save(optimizer.state_dict(), whole / "optimizer.pt")
    torch.save(scheduler.state_dict(), whole / "scheduler.pt")
    torch.save({"cpu": torch.get_rng_state()}, whole / "rng_state.pth")
    torch.save(transformers.TrainingArguments(output_dir=str(whole), use_cpu=True), whole / "training_args.bin")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.save_hyperparameters({"lr": 1e-2, "config": model.config})
            self.model = tiny(kind)

        def training_step(self, batch, _):
            return self.model(batch[0], labels=batch[0]).loss

        def configure_optimizers(self):
            optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
            return [optimizer], [torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[1, 5])]

    trainer = lightning.Trainer(max_steps=1, accelerator="cpu", logger=False, enable_checkpointing=True,
                                enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder / "lightning")
    module = Module()
    trainer.fit(module, torch.utils.data.DataLoader(torch.utils.data.TensorDataset(WORDS)))
    saver = Saver(folder, f"{kind}, Lightning", model.config, logits(module.model))
    trainer.save_checkpoint(saver.source("save_checkpoint") / "last.ckpt")
    trainer.save_checkpoint(saver.source("weights alone") / "last.ckpt", weights_only=True)


def save_adapters(folder: pathlib.Path) -> None:
    """An adapter that one process trains, as people save it."""
    tiny("llama").save_pretrained(folder / "base")
    model = adapted()
    optimizer, scheduler = train(model)
    state = {"optimizer": optimizer.state_dict(), "lr_scheduler": scheduler.state_dict()}
    kinds = {
        "get_peft_model_state_dict": peft.get_peft_model_state_dict(model),
        "lora_ of state_dict": of_adapter(model.state_dict()),
        "lora_ of a trainer's": {f"model.{key}": value for key, value in of_adapter(model.state_dict()).items()},
    }

    for kind, tensors in kinds.items():
        saver = Saver(folder, f"adapter, {kind}", model.peft_config["default"], logits(model))
        saver.both_forms({"model": tensors, **state})
        dcp.save({"model": tensors, **state}, checkpoint_id=saver.source("DCP"), no_dist=True)


def differences(command: str, folder: pathlib.Path, name: str) -> str:
    """What is wrong with a case; empty where nothing is."""
    source, made = folder / name / "source", folder / name / "made"
    named = [*source.glob("checkpoint.pt"), *source.glob("*.ckpt"), *source.glob("pytorch_model_fsdp_0"), source][0]
    done = subprocess.run([command, "convert", named, made, "--to", "hf"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return f"exit {done.returncode}: {done.stdout}{done.stderr}"
    said = done.stdout + done.stderr
    done = subprocess.run([command, "verify", named, made], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return f"verify, exit {done.returncode}: {done.stdout}{done.stderr}"
    try:
        if name.startswith("adapter"):
            base = transformers.AutoModelForCausalLM.from_pretrained(folder / "base")
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                loaded = peft.PeftModel.from_pretrained(base, made)
            told = [str(each.message) for each in told if "adapter keys" in str(each.message)]
        else:
            loaded, told = transformers.AutoModelForCausalLM.from_pretrained(made, output_loading_info=True)
            told = [f"{key}: {value}" for key, value in told.items() if value]
    except Exception as error:  # whatever the loader has against the result is a finding
        return f"{type(error).__name__}: {error}\n{said}"
    if told:
        return f"{told}\n{said}"
    wanted = torch.load(folder / name / "logits")
    return "" if torch.equal(logits(loaded), wanted) else f"other logits\n{said}"


def main() -> int:
    """0 where all checkpoints give their models."""
    command, words = sys.argv[1], sys.argv[2:]
    folder = pathlib.Path(tempfile.mkdtemp(prefix="reshard-trained-"))
    try:
        for world, kinds in ((2, [("llama", False), ("qwen2_moe", False)]), (4, [("llama", True)])):
            torch.multiprocessing.start_processes(rank_of_job, (world, folder, kinds), world, start_method="fork")
        for kind in ("llama", "qwen2_moe"):
            save_alone(folder, kind)
        save_adapters(folder)
        names = sorted(path.parent.name for path in folder.glob("*/source"))
        names = [name for name in names if all(word in name for word in words)]
        wrong = {name: found for name in names if (found := differences(command, folder, name))}
        for name, found in wrong.items():
            print(f"FAILED {name}: {found}\n")
        print(f"{len(names) - len(wrong)} of {len(names)} checkpoints: equal logits")
        return 1 if wrong or not names else 0
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
