"""Processes of the model's own."""

import os
import signal
import subprocess
import sys
import time


def fork(**_):
    """A child that outlives its job and holds every inherited descriptor."""
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
        os._exit(0)
    return pid


def subprocess_left(**_):
    return subprocess.Popen(["sleep", "600"]).pid


def daemon(**_):
    """Double fork with a session of its own: no longer in our process group."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(600)
        os.write(write, str(pid).encode())
        os._exit(0)
    os.wait()
    return int(os.read(read, 20))


def daemon_without_environment(**_):
    return subprocess.Popen(["sleep", "600"], env={}, start_new_session=True).pid


def orphan_without_environment(**_):
    """A daemon in a session of its own, with no parent and no environment."""
    code = "import os; os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0)"
    code += "; print(os.getpid(), flush=True); os.execve('/bin/sleep', ['sleep', '600'], {})"
    command = [sys.executable, "-I", "-S", "-c", code]
    with subprocess.Popen(command, env={}, stdout=subprocess.PIPE, text=True) as process:
        return int(process.stdout.readline())


def both_halves_return(text, **_):
    """The forked half comes back into the runtime as if it were the child."""
    os.fork()
    return text


def fork_raises(**_):
    if os.fork() == 0:
        raise ValueError("from the fork")
    return "parent"


def fork_bomb(number, **_):
    """Forks until it cannot, at most `number` times."""
    children, error = [], None
    for _i in range(number):
        try:
            pid = os.fork()
        except OSError as problem:
            error = type(problem).__name__
            break
        if pid == 0:
            time.sleep(600)
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    for pid in children:
        os.waitpid(pid, 0)
    return {"forked": len(children), "error": error}


def kill_parent(number, **_):
    """Sends a signal to the server."""
    try:
        os.kill(os.getppid(), number)
    except PermissionError:
        return "not permitted"
    return "sent"


def kill_everybody(number, **_):
    """Sends a signal to all that it may signal, itself not counted."""
    try:
        os.kill(-1, number)
    except PermissionError:
        return "not permitted"
    return "sent"


def environment(**_):
    parent = f"/proc/{os.getppid()}"
    seen = {"own": dict(os.environ)}
    for name in ("environ", "mem", "maps", "cwd", "fd", "exe"):
        path = f"{parent}/{name}"
        try:
            if name in ("cwd", "exe"):
                os.readlink(path)
            elif name == "fd":
                os.listdir(path)
            else:
                with open(path, "rb") as file:
                    seen.setdefault("read", {})[name] = file.read(4096).decode("latin-1") if name == "environ" else ""
            seen.setdefault("open", []).append(name)
        except OSError as error:
            seen.setdefault("refused", {})[name] = type(error).__name__
    return seen


def identity(**_):
    status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\t" in line)
    return {key: status[key] for key in ("Uid", "Gid", "Groups", "NoNewPrivs", "CapEff", "CapBnd")}


def sockets(number, text, **_):
    """Opens this many connections to the server and says nothing on them."""
    import resource
    import socket

    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    host, port = text.split(":")
    held, error = [], ""
    for _i in range(number):
        one = socket.socket()
        one.settimeout(1)
        try:
            one.connect((host, int(port)))
        except OSError as problem:
            error = type(problem).__name__
            break
        held.append(one)
    globals()["HELD"] = held  # until the process ends
    return [len(held), error]


def descriptors(**_):
    """Uses up its own descriptors and keeps them."""
    held = []
    try:
        while True:
            held.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        globals()["HELD"] = held
    return "used up"


def threads(number, **_):
    """Threads that never end."""
    import threading

    for _i in range(number):
        threading.Thread(target=time.sleep, args=(600,)).start()
    return threading.active_count()


def python(text, **_):
    """What a subprocess says: it must not find the server's channels."""
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False).stdout
