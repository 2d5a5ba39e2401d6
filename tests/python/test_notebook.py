# SPDX-License-Identifier: Apache-2.0
"""horovod.run in a Jupyter notebook, executed without a browser."""

import signal

import launching
import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

SETUP = """
import os, pathlib, time
import horovod
folder = pathlib.Path({folder!r})

def train(scale):
    import horovod.numpy as hvd
    import numpy as np
    hvd.init()
    print(f"rank {{hvd.rank()}} begins", flush=True)  # in one piece: mpirun marks what it reads, line or not
    for _ in range(6000):
        if (folder / "seen").exists():
            break
        time.sleep(0.01)
    else:
        raise TimeoutError("what a rank printed was not shown while it ran")
    return float(hvd.allreduce(np.full(3, hvd.rank() + 1.0), op=hvd.Sum)[0]) * scale + hvd.rank()
"""


class Watched(NotebookClient):
    """Calls `on_text` for everything that a cell prints, at that moment."""

    on_text = staticmethod(lambda client, text: None)

    def process_message(self, msg, cell, cell_index):
        """Look at a message of the kernel, then do as ever."""
        if msg["msg_type"] == "stream":
            type(self).on_text(self, msg["content"]["text"])
        return super().process_message(msg, cell, cell_index)


def execute(cells, on_text=lambda client, text: None):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client = type("Client", (Watched,), {"on_text": staticmethod(on_text)})(
        notebook, timeout=240, kernel_name="python3"
    )
    client.execute()
    return notebook


def texts(cell):
    return "".join(output.get("text", "") for output in cell.outputs)


@pytest.fixture(autouse=True)
def _environment(monkeypatch, tmp_path):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))


@pytest.mark.parametrize("more", ["", ", use_mpi=True"])
def test_results_and_output_as_it_comes(more, tmp_path):
    printed = []

    def on_text(client, text):
        printed.append(text)
        if "rank 0 begins" in "".join(printed) and "rank 1 begins" in "".join(printed):
            (tmp_path / "seen").touch()

    call = f"horovod.run(train, args=(10,), num_proc=2{more})"
    notebook = execute([SETUP.format(folder=str(tmp_path)), call], on_text)
    (result,) = [output for output in notebook.cells[1].outputs if output.output_type == "execute_result"]
    assert result["data"]["text/plain"] == "[30.0, 31.0]"
    assert "<stdout>:rank 1 begins" in texts(notebook.cells[1])


@pytest.mark.parametrize("more", ["", ", use_mpi=True"])
def test_a_workers_exception_is_raised_in_the_cell(more):
    fails = """
import horovod
def fails():
    import horovod.numpy as hvd
    hvd.init()
    if hvd.rank() == 1:
        raise LookupError("no such batch")
    hvd.barrier()
horovod.run(fails, num_proc=2MORE)
"""
    with pytest.raises(CellExecutionError, match="LookupError: no such batch") as caught:
        execute([fails.replace("MORE", more)])
    assert "on rank 1:" in str(caught.value)


def test_an_interrupted_cell_ends_the_job(tmp_path):
    folder = tmp_path / "pids"
    folder.mkdir()
    sleeps = f"""
import horovod
def sleeps(folder):
    import os, time
    open(f"{{folder}}/{{os.getpid()}}", "w").write(f"{{os.getpid()}}\\n")
    print("asleep", flush=True)
    time.sleep(1000)
horovod.run(sleeps, args=({str(folder)!r},), num_proc=2)
"""
    printed = []

    def on_text(client, text):
        before = "".join(printed).count("asleep")
        printed.append(text)
        if before < 2 <= "".join(printed).count("asleep"):
            client.km.provisioner.process.send_signal(signal.SIGINT)

    with pytest.raises(CellExecutionError, match="KeyboardInterrupt"):
        execute([sleeps], on_text)
    pids = launching.pids_in(folder, 2)
    launching.wait_until(lambda: not any(launching.is_alive(pid) for pid in pids))
