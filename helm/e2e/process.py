"""Commands that end, and processes that run until they are stopped."""

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

# How many times as long as usual everything may take, on a machine that others share.
PATIENCE = float(os.environ.get("PATIENCE", "1"))

# Runs a command anew whenever it ends, as a shell's -c, until SIGTERM.
RESTARTED = 'trap "kill \\$! 2>/dev/null; exit 0" TERM; while true; do "$@" & wait $!; sleep 1; done'


class Failed(Exception):
    """A command that ended with an error, with what it said."""


def run(*command, timeout: float = 120, env: dict | None = None, accept: tuple[int, ...] = (0,),
        errors: bool = False) -> str:
    """What the command prints, with `errors` also to its standard error; raises `Failed` if it ends with another exit
    code, or takes too long: `timeout` seconds, times `PATIENCE`."""
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
        """SIGTERM, and SIGKILL for what does not heed it."""
        self.process.terminate()
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def alive(self) -> bool:
        return self.process.poll() is None


def until(what: str, condition, timeout: float = 60, every: float = 0.3):
    """What `condition` gives once it gives something; an error of a command counts as nothing yet. Waits for
    `timeout` seconds at most, times `PATIENCE`."""
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
            raise Failed(f"waited {timeout} s in vain for {what}. {last}")
        time.sleep(every)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
