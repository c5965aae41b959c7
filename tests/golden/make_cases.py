#!/usr/bin/env python3
"""Writes cases.json: the hard cases (A-P) and golden cases (G1-G13) with the exact numbers a plan must have.

Tensors of the hard cases are 1 GiB of bf16. `recv` is what the worst device receives, in bytes; it is also the lower bound
unless `bound` says otherwise. `ops`: the exact steps. `steps_max`, `largest`: at most so many steps, no layout above so
many bytes. `total`: bytes received by all devices. `args`: flags for the command.
"""
import json
import pathlib

MIB = 1 << 20
TWO, THREE = (16384, 32768), (1024, 1024, 512)  # 1 GiB of bf16


def layout(shape, *dims, partial=""):
    parts = [f"<{d}>{n}" if d else str(n) for n, d in zip(shape, list(dims) + [""] * (len(shape) - len(dims)))]
    return "[" + ", ".join(parts) + "]" + partial


def case(name, mesh, source, target, recv, **more):
    return dict(name=name, mesh=mesh, **{"from": source, "to": target}, recv=int(recv), **more)


t, h = TWO, THREE
cases = [
    case("A", "{dp:16,tp:8}", layout(t, "tp"), layout(t, "", "dp,tp"), 7 * MIB),
    case("A2", "{dp:8,tp:8}", layout(t, "tp"), layout(t, "", "dp,tp"), 14 * MIB),
    case("B", "{x:8,y:8}", layout(t, "x", "y"), layout(t, "y", "x"), 16 * MIB, ops=["AllPermute"]),
    case("B2", "{x:16,y:8}", layout(t, "x", "y"), layout(t, "y", "x"), 8 * MIB),
    case("B3", "{x:16,y:8}", layout(h, "x", "y"), layout(h, "y", "x"), 8 * MIB),
    case("C", "{x:8,y:8}", layout(t, "x,y"), layout(t, "y"), 128 * MIB),
    case("C2/M", "{x:8,y:8}", layout(t, "x"), layout(t, "y"), 128 * MIB, ops=["AllPermute"]),
    case("D", "{a:4,b:4,c:8}", layout(t, "c"), layout(t, "", "a,b,c"), 7 * MIB),
    case("E", "{a:4,b:4,c:4}", layout(h, "a,b", "c"), layout(h, "a", "b", "c"), 16 * MIB),
    case("F", "{a:2,b:2,c:2,d:2}", layout(t, "b"), layout(t, "", "a,c,d"), 64 * MIB),
    case("J", "{dp:8,tp:8}", layout(t, "dp,tp"), layout(t, "tp,dp"), 16 * MIB, ops=["AllPermute"]),
    case("K", "{x:4,y:2}", layout(h, "y", "", "x"), layout(h, "", "x,y"), 112 * MIB),
    # 127 peers cost more time than the bytes they save: the bound is asked of `bytes`.
    case("K2", "{x:16,y:8}", layout(h, "y", "", "x"), layout(h, "", "x,y"), 8 * MIB - 8 * MIB // 128,
         args=["--objective", "bytes"], ops=["AllToAll"]),
    case("K2 time", "{x:16,y:8}", layout(h, "y", "", "x"), layout(h, "", "x,y"), 14.5 * MIB, bound=8 * MIB - 8 * MIB // 128,
         ops=["AllToAll", "AllToAll"], largest=8 * MIB),
    case("L", "{dp:8,tp:8}", layout(t, "", "tp,dp"), layout(t, "dp,tp"), 15.75 * MIB),
    case("N", "{x:4,y:2,z:4}", layout(h, "", "y,z,x"), layout(h, "x,y", "", "z"), 31 * MIB),
    case("O", "{w1:2,w2:2}", layout(t, "", "w1"), layout(t, "w1,w2"), 128 * MIB),
    case("P", "{node:8,gpu:8}", layout(t, partial=" sum<node>"), layout(t), 1120 * MIB,
         ops=["Slice", "AllReduce", "AllGather"]),
]

xyz = "{X:4,Y:4,Z:16}"
shard = 32 * 128 * 2
cases += [
    case("G1", xyz, "[32<X,Y>512, 128]", "[32<Y,X>512, 128]", shard, ops=["AllPermute"]),
    case("G2", xyz, "[128<Y>512, 32<X>128]", "[128<X>512, 32<Y>128]", 128 * 32 * 2, ops=["AllPermute"]),
    case("G3", xyz, "[32<X,Y>512, 128]", "[32<Z>512, 128]", shard, ops=["AllPermute"]),
    case("G4", "{x:4,y:8}", layout(h, "", "x,y"), layout(h, "", "x", "y"), 28 * MIB, ops=["AllToAll"]),
    case("G5", "{x:4,y:8}", layout(t, "x", "y"), layout(t, "y", "x"), 32 * MIB, largest=32 * MIB),
    case("G6", "{a:2,b:4,c:8}", layout(h, "a,b", "c"), layout(h, "a", "b", "c"), 16 * MIB, largest=16 * MIB),
    # 2 KiB: few peers beat few bytes under `time`, so the bound is asked of `bytes`; neither may gather the tensor.
    case("G7 bytes", "{x:4,y:2}", "[<y>16, 16, <x>16]", "[16, <x,y>16, 16]", 16**3 * 2 // 8 * 7 // 8,
         args=["--objective", "bytes"], largest=1024),
    case("G7 time", "{x:4,y:2}", "[<y>16, 16, <x>16]", "[16, <x,y>16, 16]", 512 + 768, bound=896, largest=1024,
         ops=["AllToAll", "AllToAll"]),
]

# Llama 3 8B, dp16 x tp8. Two all-to-alls at shard size would receive 15/16 + 7/8 of a shard; a multi-dimension
# all-to-all followed by a permute of what is left needs 3/2 on the swap.
named = ["--ops", "Slice,AllGather,AllToAll,AllPermute"]
for name, rows, cols in (("q_proj", 4096, 4096), ("gate_proj", 14336, 4096), ("down_proj", 4096, 14336)):
    part = rows * cols * 2 // 128
    cases.append(case(f"G8 {name} (S0,S1)->(S1,S0)", "{dp:16,tp:8}", f"[<dp>{rows}, <tp>{cols}]", f"[<tp>{rows}, <dp>{cols}]",
                      part * 3 // 2, bound=part, args=named + ["--objective", "bytes"], steps_max=2, largest=part))
    cases.append(case(f"G8 {name} (S0,S0)->(S1,S1)", "{dp:16,tp:8}", f"[<dp,tp>{rows}, {cols}]", f"[{rows}, <dp,tp>{cols}]",
                      part - part // 128, args=named + ["--objective", "bytes"], steps_max=2, largest=part))

cases += [
    # Nested cuts are ceil by ceil: [0,1,3] and [2,4]; two devices miss what they miss.
    case("G9", "{X:2}", "[<2,X>5]", "[5]", 3 * 2, ops=["AllGather"]),
    case("G9 back", "{X:2}", "[<X>5]", "[<2,X>5]", 2, total=2 + 2),
    # 6 over 4 devices is [2,2,2,0]; the empty shard is legal on both sides.
    case("G10", "{X:4}", "[<X>6]", "[6]", 6 * 2, ops=["AllGather"]),
    case("G10 back", "{X:4}", "[6]", "[<X>6]", 0, ops=["Slice"]),
    case("G10 swap", "{X:4,Y:4}", "[<X>6]", "[<Y>6]", 2 * 2),
]

# Trainer to rollout on disjoint devices: every destination byte is received once.
dense = 64 * 1024 * 512 * 2
experts = 128 * 768 * 2048 * 2
cases += [
    case("G11 TP2 PP4 DP2 -> TP1 DP16", "{dp:2,pp:4,tp:2}", "[<pp>64, <tp>1024, 512]", "[64, 1024, 512]", dense,
         to_mesh="{dp:16}@16", total=16 * dense, ops=["Exchange", "AllGather"]),
    case("G11 EP4 TP2 DP2 -> TP4 DP4", "{dp:2,ep:4,tp:2}", "[<ep>128, <tp>768, 2048]", "[128, <tp>768, 2048]", experts // 4,
         to_mesh="{dp:4,tp:4}@16", total=4 * experts, ops=["Exchange", "AllGather"]),
    case("G12 FSDP x TP -> TP", "{fsdp:4,tp:4}", "[<fsdp>4096, <tp>4096]", "[4096, <tp>4096]", 4096 * 1024 * 2,
         to_mesh="{tp:4}@16", total=4096 * 4096 * 2, ops=["Exchange"]),
    # Heads that do not divide: an uneven all-to-all between sequence and heads.
    case("G13 7 heads on sp4", "{sp:4}", "[<sp>64, 7, 128]", "[64, <sp>7, 128]", 48 * 2 * 128 * 2, ops=["Exchange"]),
    case("G13 20 heads on sp8", "{sp:8}", "[<sp>64, 20, 128]", "[64, <sp>20, 128]", 56 * 3 * 128 * 2, ops=["Exchange"]),
    case("G13 28 query heads on sp2", "{sp:2}", "[<sp>64, 28, 128]", "[64, <sp>28, 128]", 32 * 14 * 128 * 2, ops=["AllToAll"]),
    case("G13 7 key heads on sp2", "{sp:2}", "[<sp>64, 7, 128]", "[64, <sp>7, 128]", 32 * 4 * 128 * 2, ops=["Exchange"]),
]

lines = ",\n".join("  " + json.dumps(c) for c in cases)
pathlib.Path(__file__).with_name("cases.json").write_text("[\n" + lines + "\n]\n")
