"""The job that serves: a vLLM engine that does what it is told over a socket.

usage: serve.py ADDRESS MODEL TENSOR_PARALLEL
       serve.py answers FILE TENSOR_PARALLEL MODEL...     what an engine says that is started from each of these models
       serve.py reloads FILE START MODEL...     what one says that is started from START and reloads each of them from disk
       serve.py pulls FILE MODEL PLACE TENSOR_PARALLEL PUBLISH...     what one says that takes what is published at PLACE when
           it starts, and again after each of the commands PUBLISH; and the versions that it has then
"""

import json
import os
import subprocess
import sys
from multiprocessing.connection import Listener

os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"

from vllm import LLM, SamplingParams  # noqa: E402

PROMPTS = [{"prompt_token_ids": [1, 2, 3, 5]}, {"prompt_token_ids": [7, 1]}]


def engine(model, size=1, **more):
    return LLM(
        model=model, skip_tokenizer_init=True, enforce_eager=True, max_model_len=64, dtype="bfloat16", tensor_parallel_size=size,
        weight_transfer_config={"backend": "reshard"}, enable_prefix_caching=False, **more,
    )  # fmt: skip


def said(llm):
    """Tokens, and the log probabilities of the best ones."""
    wanted = SamplingParams(max_tokens=8, temperature=0, logprobs=3, detokenize=False, ignore_eos=True)
    answers = [result.outputs[0] for result in llm.generate(PROMPTS, wanted, use_tqdm=False)]
    return [
        [list(answer.token_ids), [sorted([token, one.logprob] for token, one in step.items()) for step in answer.logprobs]]
        for answer in answers
    ]


def pulls(model, place, size, publish):
    extra = {"place": place, "wait": 5}
    llm = engine(
        model, size, load_format="reshard", model_loader_extra_config=extra, worker_extension_cls="reshard.vllm.PullingWorker"
    )
    answers, versions = [said(llm)], [llm.collective_rpc("reshard_pull")]
    for command in publish:
        subprocess.run(command, shell=True, check=True)
        versions.append(llm.collective_rpc("reshard_pull"))
        answers.append(said(llm))
    return [answers, versions]


def main():
    if sys.argv[1] == "pulls":
        answers = pulls(sys.argv[3], sys.argv[4], int(sys.argv[5]), sys.argv[6:])
        with open(sys.argv[2], "w", encoding="utf-8") as file:
            json.dump(answers, file)
        return
    if sys.argv[1] in ("answers", "reloads"):
        if sys.argv[1] == "answers":
            answers = [said(engine(model, int(sys.argv[3]))) for model in sys.argv[4:]]
        else:
            llm, answers = engine(sys.argv[3]), []
            for model in sys.argv[4:]:
                llm.collective_rpc("reload_weights", kwargs={"weights_path": model})
                answers.append(said(llm))
        with open(sys.argv[2], "w", encoding="utf-8") as file:
            json.dump(answers, file)
        return
    llm = engine(sys.argv[2], int(sys.argv[3]))
    with Listener(sys.argv[1], "AF_UNIX") as listener:
        while True:
            with listener.accept() as connection:
                try:
                    while True:
                        method, *arguments = connection.recv()
                        try:
                            if method == "generate":
                                answer = ("value", said(llm))
                            else:
                                llm.collective_rpc(method, args=tuple(arguments))
                                answer = ("value", None)
                        except Exception as error:
                            answer = ("error", f"{type(error).__name__}: {error}")
                        connection.send(answer)
                except (EOFError, OSError):  # the trainer has ended
                    pass


if __name__ == "__main__":
    main()
