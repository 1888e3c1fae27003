def rows(bench):
    return []


def write(*a):
    pass
