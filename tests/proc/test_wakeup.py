import select

from allready.proc.wakeup import Wakeup


def _is_readable(wakeup: Wakeup) -> bool:
    poll = select.poll()
    poll.register(wakeup, select.POLLIN)
    return bool(poll.poll(0))


def test_several_pokes_are_one_and_only_while_it_is_open() -> None:
    wakeup = Wakeup()
    wakeup.poke()
    wakeup.open()
    number = wakeup.fileno()
    wakeup.open()
    assert wakeup.fileno() == number
    assert not _is_readable(wakeup)
    wakeup.poke()
    wakeup.poke()
    assert _is_readable(wakeup)
    wakeup.settle()
    assert not _is_readable(wakeup)
    wakeup.close()
    wakeup.close()
    wakeup.poke()
    assert wakeup.fileno() < 0
