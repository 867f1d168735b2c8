"""A script under the wrapper cannot tell it from plain Python: output, traceback and exit code, byte for byte."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from allready.live.environment import WRAPPER
from tests.cases import cases
from tests.live.beacon.helpers import environment, plain, wrapped

pytestmark = pytest.mark.jobs

SCRIPTS = {
    "prints": "print('hi', 'there')",
    "arguments": "import sys; print(sys.argv, sys.path[0], sys.flags.optimize)",
    "module": (
        "import sys\nprint(__name__, __file__, __spec__, __package__, __doc__, sorted(globals()))\n"
        "print(type(__loader__), __loader__.path, sys.modules['__main__'].__dict__ is globals())"
    ),
    "guard": "if __name__ == '__main__': print('main')",
    "words": "import sys; print(sys.orig_argv[1:])",
    "exception": "def f(): raise ValueError('no')\nf()",
    "chained": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise RuntimeError('b') from e",
    "context": "try:\n    1 / 0\nexcept ZeroDivisionError:\n    [][1]",
    "group": "raise ExceptionGroup('g', [ValueError(1), ExceptionGroup('h', [TypeError('x')])])",
    "note": "e = ValueError('no'); e.add_note('a note'); raise e",
    "syntax": "def f(:\n    pass",
    "indentation": "if 1:\nprint(2)",
    "import_fails": "import no_such_module_at_all",
    "exit_0": "import sys; sys.exit()",
    "exit_3": "import sys; sys.exit(3)",
    "exit_text": "import sys; sys.exit('went wrong')",
    "exit_object": "raise SystemExit([1, 2])",
    "exit_big": "raise SystemExit(1 << 40)",
    "exit_exception": "raise SystemExit(ValueError('x'))",
    "exit_at_once": "import os; print('x', flush=True); os._exit(7)",
    "atexit": "import atexit; atexit.register(print, 'bye'); print('hi')",
    "atexit_after_exception": "import atexit; atexit.register(print, 'bye'); raise KeyError('x')",
    "interrupt": "raise KeyboardInterrupt",
    "interrupt_signal": "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(5)",
    "terminated": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "segfault": "import ctypes; ctypes.string_at(0)",
    "abort": "import os; os.abort()",
    "own_hook": "import sys; sys.excepthook = lambda t, v, tb: print('hook', t, v, tb.tb_lineno, tb.tb_next)\n1 / 0",
    "broken_hook": "import sys\ndef hook(t, v, tb):\n    raise TypeError('in the hook')\nsys.excepthook = hook\n1 / 0",
    "exiting_hook": "import sys\ndef hook(t, v, tb):\n    sys.exit(5)\nsys.excepthook = hook\n1 / 0",
    "last_traceback": (
        "import atexit, sys, traceback\n"
        "atexit.register(lambda: traceback.print_tb(sys.last_traceback))\nraise ValueError('x')"
    ),
    "thread": "import threading\nt = threading.Thread(target=lambda: 1 / 0, name='t'); t.start(); t.join()",
    "threads": "import threading; print([t.name for t in threading.enumerate()])",
    "non_daemon": "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.5), print('late'))).start()",
    "environment": "import os; print(sorted(k for k in os.environ if k.startswith('ALLREADY')))",
    "warning": "import warnings; warnings.warn('old', DeprecationWarning)",
    "fork": "import os\npid = os.fork()\nif pid == 0:\n    os._exit(4)\nprint(os.waitpid(pid, 0)[1])",
    "pickle": (
        "import os, pickle\nclass A:\n    x = 1\nprint(pickle.loads(pickle.dumps(A())).x, A.__module__)\n"
        "print(pickle.loads(pickle.dumps(os._exit)) is os._exit)"
    ),
    "spawn": (
        "import multiprocessing as mp\nclass A:\n    x = 3\ndef f(a, q): q.put((a.x, __name__))\n"
        "if __name__ == '__main__':\n    c = mp.get_context('spawn'); q = c.Queue()\n"
        "    p = c.Process(target=f, args=(A(), q)); p.start(); print(q.get(timeout=50)); p.join(); print(p.exitcode)"
    ),
    "forkserver": (
        "import multiprocessing as mp, os\ndef f(q): q.put(sorted(k for k in os.environ if 'ALLREADY' in k))\n"
        "if __name__ == '__main__':\n    c = mp.get_context('forkserver'); q = c.Queue()\n"
        "    p = c.Process(target=f, args=(q,)); p.start(); print(q.get(timeout=50)); p.join()"
    ),
    "subprocess": "import subprocess, sys; print(subprocess.run([sys.executable, '-c', 'print(6 * 7)']).returncode)",
    "inspect": "import inspect, sys\ndef f(): return 1\nprint(inspect.getsource(f), inspect.getsourcefile(f))",
    "neighbour": "import neighbour; print(neighbour.__file__)",
    "stdin": "import sys; print(repr(sys.stdin.read()))",
    "generator_left": "def g():\n    try:\n        yield\n    finally:\n        print('closed')\nx = g(); next(x)",
    "global_left": "class A:\n    def __del__(self): print('gone')\na = A()",
    "bom": "\ufeffprint('bom')",
    "interpreter": "import sys; print(sys.flags, sys.warnoptions, sys.dont_write_bytecode)",
    "doc": '"""A page."""\nprint(__doc__)',
    "future": "from __future__ import annotations\ndef f(a: nothing): pass\nprint(f.__annotations__)",
    "annotated": "x: int = 1\nprint(__annotations__)",
}  # fmt: skip


def same(ours: subprocess.CompletedProcess[bytes], theirs: subprocess.CompletedProcess[bytes]) -> None:
    assert (ours.stdout, ours.stderr, ours.returncode) == (theirs.stdout, theirs.stderr, theirs.returncode)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    home = tmp_path / "the job"  # with a space
    home.mkdir()
    (home / "neighbour.py").write_text("")
    return home


@cases("name", SCRIPTS, parts=9)
def test_a_script_cannot_tell_the_wrapper_from_plain_python(name: str, folder: Path, tmp_path: Path) -> None:
    (folder / "script.py").write_text(SCRIPTS[name], encoding="utf-8")
    theirs = plain("script.py", "--lr", "a b", "", "--module", cwd=folder)
    same(wrapped("script.py", "--lr", "a b", "", "--module", cwd=folder, run_dir=tmp_path), theirs)


@cases("name", ["arguments", "module", "exception", "exit_text", "interrupt", "spawn", "words"], parts=2)
def test_the_wrapper_may_be_started_as_a_module(name: str, folder: Path, tmp_path: Path) -> None:
    (folder / "script.py").write_text(SCRIPTS[name], encoding="utf-8")
    theirs = plain("script.py", "x", cwd=folder)
    same(wrapped("script.py", "x", cwd=folder, run_dir=tmp_path, by_module=True), theirs)


@pytest.mark.parametrize("name", ["module", "exception"])
def test_without_a_run_folder_it_just_runs_the_script(name: str, folder: Path) -> None:
    (folder / "script.py").write_text(SCRIPTS[name], encoding="utf-8")
    same(plain(str(WRAPPER), "script.py", cwd=folder), plain("script.py", cwd=folder))


def test_the_path_of_the_script_is_what_python_makes_of_it(folder: Path, tmp_path: Path) -> None:
    text = SCRIPTS["module"] + "\nimport sys; print(sys.path[0], sys.argv)\nraise ValueError"
    (folder / "script.py").write_text(text)
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "real.py").write_text(text)
    (folder / "link.py").symlink_to("elsewhere/real.py")
    for path in ("./script.py", "../the job/script.py", ".//script.py", f"{folder}/script.py", "link.py"):
        same(wrapped(path, cwd=folder, run_dir=tmp_path), plain(path, cwd=folder))


def test_of_the_recursion_limit_only_the_wrappers_few_frames_are_missing(folder: Path, tmp_path: Path) -> None:
    (folder / "script.py").write_text("def f(n): return f(n + 1)\nf(0)")
    (ours, our_depth), (theirs, their_depth) = (
        (re.sub(rb"repeated \d+", b"", done.stderr), int(re.findall(rb"repeated (\d+)", done.stderr)[0]))
        for done in (wrapped("script.py", cwd=folder, run_dir=tmp_path), plain("script.py", cwd=folder))
    )
    assert ours == theirs
    assert their_depth - 8 <= our_depth <= their_depth


def test_other_encodings_are_read_as_python_reads_them(folder: Path, tmp_path: Path) -> None:
    (folder / "latin.py").write_bytes(
        "# -*- coding: latin-1 -*-\ns = 'café'\nprint(len(s))\nraise ValueError(s)".encode("latin-1")
    )
    same(wrapped("latin.py", cwd=folder, run_dir=tmp_path), plain("latin.py", cwd=folder))


def test_modules_run_as_with_dash_m(folder: Path, tmp_path: Path) -> None:
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").write_text("")
    text = "import sys\nfrom . import other\nprint(sys.argv, sys.path[0], __spec__.name, __package__, __file__)\n"
    (folder / "package" / "train.py").write_text(text + "import multiprocessing\n" + SCRIPTS["spawn"])
    (folder / "package" / "fails.py").write_text(text + SCRIPTS["chained"])
    (folder / "package" / "__main__.py").write_text(text + "sys.exit('end')")
    (folder / "package" / "other.py").write_text("")
    for name in ("package.train", "package.fails", "package", "package.absent", "no_such_package"):
        theirs = plain("-m", name, "-x", "--module", cwd=folder)
        same(wrapped("--module", name, "-x", "--module", cwd=folder, run_dir=tmp_path), theirs)
        same(wrapped("--module", name, "-x", "--module", cwd=folder, run_dir=tmp_path, by_module=True), theirs)


@pytest.mark.parametrize("flag", [(), ("--run-path",)])
def test_folders_archives_and_compiled_files_run_too(flag: tuple[str, ...], folder: Path, tmp_path: Path) -> None:
    main = "import sys, helper\nprint(sys.argv, sys.path[0], __name__, __file__, helper.__file__)\n1 / 0\n"
    (folder / "app").mkdir()
    (folder / "app" / "__main__.py").write_text(main)
    (folder / "app" / "helper.py").write_text("")
    with zipfile.ZipFile(folder / "app.pyz", "w") as archive:
        archive.writestr("__main__.py", main)
        archive.writestr("helper.py", "")
    (folder / "empty").mkdir()
    (folder / "source.py").write_text("import sys; print(sys.argv, __file__, __loader__)")
    code = "import py_compile; py_compile.compile('source.py', 'compiled.pyc')"
    assert plain("-c", code, cwd=folder).returncode == 0
    for target in ("app", "app.pyz", "empty", "compiled.pyc", "absent.py"):
        theirs = plain(target, "x", cwd=folder)
        ours = wrapped(*flag, target, "x", cwd=folder, run_dir=tmp_path)
        if target == "compiled.pyc":  # an address is in the loader's name
            assert ours.stdout.split(b" object at")[0] == theirs.stdout.split(b" object at")[0]
        else:
            same(ours, theirs)


def test_options_of_the_interpreter_stay(folder: Path, tmp_path: Path) -> None:
    (folder / "script.py").write_text(SCRIPTS["interpreter"] + "\n" + SCRIPTS["words"] + "\n" + SCRIPTS["warning"])
    options = ("-W", "error", "-X", "dev", "-O")
    theirs = plain(*options, "script.py", cwd=folder)
    same(wrapped("script.py", cwd=folder, run_dir=tmp_path, options=options), theirs)
    same(wrapped("script.py", cwd=folder, run_dir=tmp_path, options=options, by_module=True), theirs)
    with_variable = plain("script.py", cwd=folder, PYTHONWARNINGS="error", PYTHONSAFEPATH="1")
    ours = wrapped("script.py", cwd=folder, run_dir=tmp_path, PYTHONWARNINGS="error", PYTHONSAFEPATH="1")
    same(ours, with_variable)


def test_forking_is_no_warning_where_it_is_none_without_us(folder: Path, tmp_path: Path) -> None:
    """Python 3.12 and newer warn of a fork beside a thread; ours is not there while the script forks."""
    text = "import os, time\ntime.sleep(0.3)\nfor _ in range(3):\n    if not os.fork(): os._exit(0)\n    os.wait()\n"
    text += "print('ok')"
    (folder / "script.py").write_text(text)
    theirs = plain("-W", "error", "script.py", cwd=folder)
    assert theirs.stdout == b"ok\n"
    same(wrapped("script.py", cwd=folder, run_dir=tmp_path, options=("-W", "error")), theirs)


def test_a_file_of_the_job_may_have_the_name_of_a_module_that_we_use(folder: Path, tmp_path: Path) -> None:
    for name in ("mmap", "zlib", "ctypes", "json", "runpy", "struct"):
        (folder / f"{name}.py").write_text("MINE = True\n")
    (folder / "script.py").write_text("import mmap, ctypes, json\nprint(mmap.MINE, ctypes.MINE, json.MINE)")
    same(wrapped("script.py", cwd=folder, run_dir=tmp_path), plain("script.py", cwd=folder))
    elsewhere = tmp_path / "script.py"  # the working directory is not in a script's path
    elsewhere.write_text("import mmap, ctypes, json; print(mmap.ACCESS_READ, json.dumps(1))")
    same(wrapped(str(elsewhere), cwd=folder, run_dir=tmp_path), plain(str(elsewhere), cwd=folder))


def test_a_folder_that_is_not_there_is_told_once_and_the_script_runs(folder: Path, tmp_path: Path) -> None:
    (folder / "script.py").write_text("print('runs')")
    env = environment(tmp_path) | {"ALLREADY_RANK_DIR": str(tmp_path / "absent")}
    done = subprocess.run(
        [sys.executable, "-u", str(WRAPPER), "script.py"],
        cwd=folder,
        env=env,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.returncode) == (b"runs\n", 0)
    assert done.stderr.count(b"\n") == 1
    assert b"allready: this rank runs without its beacon: FileNotFoundError" in done.stderr


def test_nothing_to_run_is_a_usage_error(tmp_path: Path) -> None:
    done = plain(str(WRAPPER), "--module", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(b"usage: ")


def test_a_script_that_changes_its_folder_and_closes_everything_still_runs(folder: Path, tmp_path: Path) -> None:
    text = (
        "import os, time\nos.chdir('/')\nos.closerange(3, 256)\ntime.sleep(0.6)\nprint(open('/proc/self/comm').read())"
    )
    (folder / "script.py").write_text(text)
    same(wrapped("script.py", cwd=folder, run_dir=tmp_path), plain("script.py", cwd=folder))


LEAVES = """
import os, threading
from allready.live.beacon import thread
class Stuck:
    speaks = True
    def leave(self):
        {does}
thread._LEAVE_S = 0.2
os._exit = thread._reporting(os._exit, Stuck())
os._exit({status})
"""


@cases(
    ("does", "status", "code", "said"),
    [
        ("threading.Event().wait()", "0", 0, b""),
        ("print('told', flush=True)", "False", 0, b"told\n"),
        ("print('told', flush=True)", "True", 1, b""),
    ],
)
def test_os_exit_leaves_whatever_becomes_of_the_last_report(does: str, status: str, code: int, said: bytes) -> None:
    text = LEAVES.format(does=does, status=status)
    done = subprocess.run([sys.executable, "-c", text], stdout=subprocess.PIPE, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (code, said)
