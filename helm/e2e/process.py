"""Runs commands to their end, and processes until they are stopped."""

import os
import signal
import subprocess
import time

from .layout import BIN, KUBECONFIG, LOGS

ENVIRONMENT = {
    **os.environ,
    "PATH": f"{BIN}:/usr/sbin:/sbin:{os.environ['PATH']}",
    "KUBECONFIG": str(KUBECONFIG),
}

# A factor on all timeouts, for a machine that other work shares.
PATIENCE = float(os.environ.get("PATIENCE", "1"))

# A script for `bash -c` that restarts a command whenever it ends, until SIGTERM.
RESTARTED = 'trap "kill \\$! 2>/dev/null; exit 0" TERM; while true; do "$@" & wait $!; sleep 1; done'


class Failed(Exception):
    """A command failed, with its output, or a wait timed out."""


def run(*command, timeout: float = 120, env: dict | None = None, accept: tuple[int, ...] = (0,),
        errors: bool = False) -> str:
    """Runs a command and returns its stdout, with `errors` also its stderr. Raises `Failed` if its exit code is not in
    `accept`, or if it takes longer than `timeout` seconds, times `PATIENCE`."""
    timeout *= PATIENCE
    command = [str(word) for word in command]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, env={**ENVIRONMENT, **(env or {})}
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{' '.join(command)}: not done after {timeout} s") from None
    if done.returncode not in accept:
        raise Failed(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr if errors else done.stdout


class Background:
    """A process with a log, in a session of its own."""

    def __init__(self, name: str, *command, env: dict | None = None):
        self.name, self.command = name, [str(word) for word in command]
        self.env = {**ENVIRONMENT, **(env or {})}
        self.log = LOGS / f"{name}.log"
        self.start()

    def start(self) -> None:
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=log, env=self.env, start_new_session=True
            )

    def stop(self, patience: float = 15) -> None:
        """Stops the process by SIGTERM, and after `patience` seconds by SIGKILL."""
        self.process.terminate()
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def alive(self) -> bool:
        return self.process.poll() is None


def until(what: str, condition, timeout: float = 60, every: float = 0.3):
    """Waits until `condition` returns a true value, and returns that. A failed command counts as false. Raises `Failed`
    after `timeout` seconds, times `PATIENCE`."""
    timeout *= PATIENCE
    end, last = time.monotonic() + timeout, ""
    while True:
        try:
            found = condition()
            if found:
                return found
        except Failed as error:
            last = str(error)
        if time.monotonic() > end:
            raise Failed(f"waited {timeout} s for {what}, which did not come. {last}")
        time.sleep(every)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
