"""What holds for every test.

Async tests are run by anyio's pytest plugin in auto mode, on asyncio; an
``async def`` test needs no mark.  Warnings are errors (pyproject.toml), so an
unclosed socket or a coroutine that nobody awaited fails the test that left it.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Generator, Iterator
from inspect import iscoroutinefunction
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx
from hypothesis import HealthCheck, settings

from tests.origins.servers.fixtures import authority, azurite, seaweed
from tests.parts import missing

__all__ = ["authority", "azurite", "seaweed"]

CI = os.environ.get("CI") == "true"

ANSWERED_WITHIN = 10.0
"""Seconds for a request whose answer is here to be over."""

# How long an example takes depends on what else runs on the machine, and no test
# asserts a time.  Under CI the examples are the same every time, so that what
# fails there fails again; at home they are new ones.
settings.register_profile(
    "weightd",
    settings.get_profile("ci" if CI else "default"),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("weightd")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


def pytest_configure(config: pytest.Config) -> None:
    # A shell without job control has what it runs in the background ignore Ctrl-C, and so would
    # every process that is begun here.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# -- Parts that may be missing --------------------------------------------------


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        for part in mark.args:
            reason = missing(part)
            if reason is not None:
                pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Under CI a skip is a failure, unless its reason begins with "cannot be had"."""
    report = yield
    if CI and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not reason.removeprefix("Skipped: ").startswith("cannot be had"):
            report.outcome = "failed"
            report.longrepr = f"skipped under CI=true, where the part can be had: {reason}"
    return report


# -- Nothing is left behind ------------------------------------------------------


def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> None:
    """Give every async test the fixture that looks for tasks; a plain test has no loop to ask."""
    if not collector.istestfunction(obj, name):
        return
    inner = obj.hypothesis.inner_test if hasattr(obj, "hypothesis") else obj
    if iscoroutinefunction(inner):
        pytest.mark.usefixtures("no_task_left")(obj)


@pytest.fixture
async def no_task_left(anyio_backend: str) -> AsyncIterator[None]:
    """Fail a test that leaves an asyncio task, after its other fixtures were torn down."""
    before = asyncio.all_tasks()
    yield
    if answering := {task for task in asyncio.all_tasks() - before if _is_a_servers(task)}:
        # Of a server that several tests share: an answer can be here before its task is over.
        await asyncio.wait(answering, timeout=ANSWERED_WITHIN)
    left = {task for task in asyncio.all_tasks() - before if not _is_the_runners(task)}
    assert not left, f"tasks left: {left}"


def _is_a_servers(task: asyncio.Task[object]) -> bool:
    """Whether the HTTP server made the task, for one request."""
    return getattr(task.get_coro(), "__qualname__", "").endswith(".run_asgi")


def _is_the_runners(task: asyncio.Task[object]) -> bool:
    """Whether anyio's test runner made the task: the one that runs, and the one that waits."""
    return getattr(task.get_coro(), "__qualname__", "").startswith("TestRunner.")


@pytest.fixture(autouse=True)
def no_descriptor_left() -> Iterator[None]:
    """Fail a test that leaves a file or directory open.

    Sockets and pipes are left to ResourceWarning; the interpreter and the
    plugins keep some of their own.
    """
    before = _open_paths()
    yield
    left = sorted(path for fd, path in _open_paths().items() if before.get(fd) != path)
    assert not left, f"descriptors left open: {left}"


def _open_paths() -> dict[str, str]:
    """What this process has open in the filesystem, by descriptor."""
    found: dict[str, str] = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            continue  # the descriptor of the listing itself
        if target.startswith("/") and not target.startswith(("/dev/", "/proc/", "/sys/")):
            found[fd] = target
    return found


# -- The loop is never blocked -----------------------------------------------------


@pytest.fixture(autouse=True)
def no_blocking_call() -> Iterator[None]:
    """Raise where code of weightd's makes a blocking call in the thread of a running loop."""
    with blockbuster_ctx("weightd"):
        yield


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A place for a cache of the test's own; it does not exist yet."""
    return tmp_path / "cache"
