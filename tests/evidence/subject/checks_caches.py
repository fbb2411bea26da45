from lib import caches

HOLDER = caches.Holder()


def check_cache_is_filled():
    assert caches.cached(2) == 4
    assert caches.fibonacci(6) == 8
    assert caches.remembered(2) == 4
    assert HOLDER.square(3) == 9


def check_cache_serves():
    assert caches.cached(2) == 4


def check_recursive_cache_serves():
    assert caches.fibonacci(6) == 8


def check_memo_serves():
    assert caches.remembered(2) == 4


def check_cache_of_method_serves():
    assert HOLDER.square(3) == 9


def check_no_cache():
    assert True
