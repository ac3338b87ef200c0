"""nbx-probe on the phantom GPU, all ranks real: it finds right results right, and wrong ones wrong."""
import json
import os
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
PROBE = Path(os.environ.get("NBX_BIN", HERE.parents[1] / "build/bin")) / "nbx-probe"
LIMIT_S = 180
NETWORK = ["NCCL_NET=Socket", "NCCL_NET_PLUGIN=none", "NCCL_SOCKET_IFNAME=lo", "NCCL_SHM_DISABLE=1"]
IN_PLACE = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"}
BUS = {"all_reduce": 4 / 3, "all_gather": 2 / 3, "reduce_scatter": 2 / 3, "broadcast": 1, "reduce": 1, "sendrecv": 1,
       "alltoall": 2 / 3}  # of three ranks


def probe(folder, ranks, *options):
    """Status and document of every rank."""
    processes = [subprocess.Popen([str(word) for word in (
        HERE / "phantom-run", *NETWORK, f"NCCL_HOSTID=host-{rank}", PROBE, "--ranks", ranks, "--rank", rank, "--id-file",
        folder / "id", "-n", 2, "-w", 1, "--json", *options)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for rank in range(ranks)]
    results = []
    for process in processes:
        output, errors = process.communicate(timeout=LIMIT_S)
        assert process.returncode in (0, 1) and output, errors
        results.append((process.returncode, json.loads(output)))
    return results


def test_every_collective_is_right(tmp_path):
    sizes = [4096, 65536]
    for status, document in probe(tmp_path, 3, "-b", sizes[0], "-e", sizes[-1], "-f", 16):
        assert status == 0 and document["out_of_bounds"] == {"count": 0, "okay": True}
        assert len(document["results"]) == len(BUS) * len(sizes)
        for result in document["results"]:
            name = result["collective"]
            assert ("in_place" in result) == (name in IN_PLACE)
            measured = result["out_of_place"]
            assert measured["nwrong"] == 0
            assert measured["alg_bw"] == pytest.approx(result["size"] / measured["time"] / 1e3)
            assert measured["bus_bw"] == pytest.approx(measured["alg_bw"] * BUS[name])


@pytest.mark.parametrize("datatype, op", [("float", "avg"), ("int32", "max"), ("double", "sum"), ("uint8", "sum")])
def test_types_and_reductions(tmp_path, datatype, op):
    for status, document in probe(tmp_path, 2, "-b", 1000, "-e", 1000, "-d", datatype, "-o", op, "all_reduce"):
        assert status == 0, document
        assert (document["results"][0]["type"], document["results"][0]["redop"]) == (datatype, op)


def test_a_contribution_that_should_not_be_there_is_wrong(tmp_path):
    """Rank 0 is told that rank 1 is a ghost, and so expects less than what comes back."""
    options = ["-b", "4000", "-e", "4000", "all_reduce", "sendrecv"]
    first = subprocess.Popen([str(word) for word in (
        HERE / "phantom-run", *NETWORK, "NCCL_HOSTID=host-0", PROBE, "--ranks", 2, "--rank", 0, "--real-ranks", 1,
        "--id-file", tmp_path / "id", "-n", 2, "-w", 1, "--json", *options)], stdout=subprocess.PIPE, text=True)
    other = subprocess.Popen([str(word) for word in (
        HERE / "phantom-run", *NETWORK, "NCCL_HOSTID=host-1", PROBE, "--ranks", 2, "--rank", 1, "--id-file",
        tmp_path / "id", "-n", 2, "-w", 1, "--json", *options)], stdout=subprocess.PIPE, text=True)
    output, _ = first.communicate(timeout=LIMIT_S)
    other.communicate(timeout=LIMIT_S)
    document = json.loads(output)
    assert first.returncode == 1 and not document["out_of_bounds"]["okay"]
    assert [result["out_of_place"]["nwrong"] for result in document["results"]] == [1000, 1000]


@pytest.mark.parametrize("options, text", [
    (["--ranks", 2, "--rank", 2], "lie within --ranks"),
    (["--ranks", 2, "--real-ranks", 3], "lie within --ranks"),
    (["--ranks", 2, "--rank", 1, "--real-ranks", 1], "names a ghost"),
    (["--ranks", 2, "--rank", 1], "--id-file is needed"),
    (["-b", "2M", "-e", "1M"], "beyond --end"),
])
def test_what_makes_no_sense_is_refused(options, text):
    done = subprocess.run([str(word) for word in (PROBE, *options)], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and text in done.stderr
