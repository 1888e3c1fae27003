"""Programs from Debian's packages, unpacked into .cache of this checkout: that needs no root, and nothing is installed.

A program on PATH, or in Debian's place, comes first. Else its package and the libraries it depends on are downloaded,
once. Where that fails, `Unavailable` says why.
"""

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

CACHE = Path(__file__).resolve().parents[1] / ".cache"
_APT = ["apt-get", "-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=15", "-o", "APT::Sandbox::User="]


class Unavailable(Exception):
    """There is no such program here, and it could not be downloaded."""


def unpacked(package):
    """Return the folder into which a package is unpacked."""
    return CACHE / package


def find(program, package, inside):
    """Return a program's path, after downloading its package if need be; `inside` is its place in the package."""
    installed = shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/bin")
    if installed:
        return Path(installed)
    if not unpacked(package).exists():
        _download(package)
    return unpacked(package) / inside


def _download(package):
    """Unpack a package and the libraries it depends on. Of two processes that do so at once, the first wins."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise Unavailable(f"{package} is not on PATH, and there is no apt-get to download it with: install {package}")
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{package}-", dir=CACHE) as place:
        try:
            _download_packages(Path(place), package)
        except subprocess.SubprocessError as error:
            raise Unavailable(f"{package} is not on PATH, and its package could not be downloaded: {error}")
        with contextlib.suppress(OSError):
            os.rename(Path(place) / "unpacked", unpacked(package))


def _download_packages(place, package):
    try:
        _run(place, *_APT, "download", package)
    except subprocess.CalledProcessError:
        if os.geteuid() != 0:  # only root may fetch the lists of packages
            raise
        _run(place, *_APT, "update")
        _run(place, *_APT, "download", package)
    (archive,) = place.glob(f"{package}_*.deb")
    depends = _run(place, "dpkg-deb", "--field", archive, "Depends")
    libraries = re.findall(r"\blib(?!c6\b)[^\s,|]+", depends)  # libc must be the machine's own
    if libraries:
        _run(place, *_APT, "download", *libraries)
    for one in place.glob("*.deb"):
        _run(place, "dpkg-deb", "--extract", one, place / "unpacked")


def _run(place, *command):
    return subprocess.run(command, cwd=place, capture_output=True, text=True, check=True, timeout=120).stdout


def environment(place):
    """Return the environment in which programs find the libraries that were unpacked with them."""
    libraries = sorted({str(library.parent) for library in place.rglob("lib*.so.*")})
    return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(libraries)} if libraries else None
