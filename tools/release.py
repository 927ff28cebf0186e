"""The files of a release, made twice and compared byte for byte; `make release` also tags it.

python tools/release.py build/release [--tag]
"""

import argparse
import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from io import BytesIO
from pathlib import Path

from mialib.store import ROOT

PACKAGES = ("", "audit", "book")  # folders of a clone
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, 'build_' + sys.argv[1])(sys.argv[2]))"


def git(*arguments: str) -> str:
    """What git prints in the clone."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def build(out: Path) -> list[Path]:
    """Build each package's sdist, and its wheel from nothing but the sdist; their times are the commit's."""
    time, made, out = git("log", "-1", "--format=%ct"), [], out.resolve()  # builds run in folders of their own

    def run(kind: str, folder: Path, into: Path) -> Path:
        command = [sys.executable, "-c", BUILD, kind, str(into)]
        environment = os.environ | {"SOURCE_DATE_EPOCH": time}
        done = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True)
        return into / done.stdout.split()[-1]

    out.mkdir(parents=True)
    for package in PACKAGES:
        with tempfile.TemporaryDirectory() as temporary:
            copy = Path(temporary, "clone")  # setuptools writes beside the sources
            shutil.unpack_archive(_archive_of_commit(Path(temporary)), copy)
            sdist = run("sdist", copy / package, Path(temporary))
            _repack(sdist, out / sdist.name, int(time))
            shutil.unpack_archive(sdist, Path(temporary, "sdist"), filter="data")
            [alone] = Path(temporary, "sdist").iterdir()
            made += [out / sdist.name, run("wheel", alone, out)]
    return made


def _archive_of_commit(folder: Path) -> Path:
    git("archive", f"--output={folder / 'clone.tar'}", "HEAD")
    return folder / "clone.tar"


def _repack(sdist: Path, out: Path, time: int) -> None:
    """Write an sdist anew: sorted, everything of one time and nobody's."""
    inner = BytesIO()
    with tarfile.open(sdist) as old, tarfile.open(fileobj=inner, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda of: of.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = time, 0, 0, "", ""
            member.mode, member.pax_headers = 0o755 if member.isdir() or member.mode & 0o100 else 0o644, {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    with out.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=time) as packed:
        packed.write(inner.getvalue())


def checksums(paths: list[Path]) -> str:
    """Lines as `sha256sum` prints them."""
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(paths))


def main() -> None:
    """What `make release` runs last."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tag", action="store_true")
    given, tag = parser.parse_args(), f"v{VERSION}"
    if changed := git("status", "--porcelain"):
        sys.exit(f"not committed, so no release:\n{changed}")
    if given.tag and git("tag", "--list", tag):
        sys.exit(f"{tag} is there already: raise the version in pyproject.toml")
    shutil.rmtree(given.out, ignore_errors=True)
    made, again = build(given.out), given.out / "again"
    if checksums(made) != checksums(build(again)):
        sys.exit("two builds of the same commit differ")
    shutil.rmtree(again)
    (given.out / "SHA256SUMS").write_text(checksums(made), encoding="utf-8")
    print(checksums(made), end="")
    if twine := shutil.which("twine", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"):
        subprocess.run([twine, "check", "--strict", *map(str, made)], check=True)
    else:
        sys.exit(
            "twine is missing (pip install twine): the packages' descriptions are not checked, and nothing is tagged"
        )
    if given.tag:
        git("tag", "--annotate", tag, "--message", f"mialib {VERSION}")
        print(f"{tag} is made; to publish it: git push origin {tag}")


if __name__ == "__main__":
    main()
