"""Which process it is, and whether it is gone for certain."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from holdfast.store import processes
from holdfast.store.processes import ProcessName

SLEEP = [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"]
NAME = "from holdfast.store import processes; own = processes.current(); print(own.machine, own.process, sep='|')"


@pytest.fixture
def child():
    process = subprocess.Popen(SLEEP, stdout=subprocess.PIPE)
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def named(pid, machine=None):
    return ProcessName(processes.machine() if machine is None else machine, f"{pid}-{processes._started(pid)}")


def test_this_process_has_a_name_of_its_own_and_is_not_gone():
    own = processes.current()
    assert own.machine and own.process.startswith(f"{os.getpid()}-")
    assert own == processes.current() and not processes.is_gone(own)


def test_a_process_is_gone_when_it_is_killed_even_before_its_parent_asks(child):
    name = named(child.pid)
    assert not processes.is_gone(name)
    child.send_signal(signal.SIGSTOP)
    assert not processes.is_gone(name), "who is frozen is there"
    child.kill()
    until = time.monotonic() + 10
    while not processes.is_gone(name):
        assert time.monotonic() < until
    child.wait()
    assert processes.is_gone(name)


def test_a_pid_that_was_given_again_is_another_process(child):
    pid, _, started = named(child.pid).process.partition("-")
    assert processes.is_gone(ProcessName(processes.machine(), f"{pid}-{int(started) - 1}"))


def test_of_another_machine_or_namespace_nothing_is_known(child):
    name = named(child.pid, machine="elsewhere pid:[1]")
    child.kill()
    child.wait()
    assert not processes.is_gone(name)


@pytest.mark.parametrize("name", [("", ""), ("m", ""), ("", "1-1"), ("m", "nonsense"), ("m", "1-"), ("m", "-1")])
def test_a_name_that_says_nothing_proves_nothing(name, monkeypatch):
    monkeypatch.setattr(processes, "machine", lambda: "m")
    assert not processes.is_gone(ProcessName(*name))


def test_a_process_that_may_not_be_looked_at_is_there(monkeypatch, child):
    """As with a /proc that hides the processes of other users."""
    name = named(child.pid)
    monkeypatch.setattr(processes, "_started", lambda pid: None)
    assert not processes.is_gone(name)

    def forbidden(pid, number):
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", forbidden)
        assert not processes.is_gone(name)


def test_without_a_proc_of_its_own_a_process_has_no_name(monkeypatch):
    monkeypatch.setattr(os, "readlink", lambda path: "1" if path == "/proc/self" else "pid:[7]")
    processes._machine_of.cache_clear()
    assert processes.current() == ProcessName()
    monkeypatch.undo()
    processes._machine_of.cache_clear()
    assert processes.current().machine


def test_a_pid_of_another_namespace_is_never_taken_for_one_of_ours():
    """In the namespace of its own it is process 1, which here is somebody else."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("a namespace of its own needs root and unshare")
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", NAME]
    told = subprocess.run(command, capture_output=True, text=True)
    if told.returncode:
        pytest.skip(f"no namespace can be made here: {told.stderr.strip()}")
    machine, _, process = told.stdout.strip().partition("|")
    assert process.startswith("1-") and machine and machine != processes.machine()
    assert not processes.is_gone(ProcessName(machine, process)), "it is gone, but that can't be known from here"
