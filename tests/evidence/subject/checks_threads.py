import sys
import threading
import time

from lib import core

STOP = threading.Event()
GO = threading.Event()
DONE = threading.Event()
THREADS = []


def _wait_for(thread):
    thread.join()
    # It has said goodbye by now, but may still be on its way out.
    while thread.ident in sys._current_frames():
        time.sleep(0.001)


def loop():
    while not STOP.wait(0.01):
        if GO.is_set():
            core.in_thread(DONE)
            GO.clear()


def check_joined_thread():
    done = threading.Event()
    thread = threading.Thread(target=core.in_thread, args=(done,))
    thread.start()
    _wait_for(thread)
    assert done.is_set()


def check_after_the_joined():
    assert True


def check_leaves_a_thread():
    THREADS.append(threading.Thread(target=loop, daemon=True, name="left"))
    THREADS[0].start()


def check_beside_the_thread():
    GO.set()
    assert DONE.wait(10)


def check_ends_the_thread():
    STOP.set()
    # What it does after the last test belongs to the session, and so to every test.
    _wait_for(THREADS.pop())
