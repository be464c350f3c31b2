"""Build what a release consists of, and check it: `make release`. It uploads and signs nothing.

build/release/ has the sdist, the wheel and NOTES.md, the notes from CHANGELOG.md. A package index
shows README.md without the repository around it, so the build makes its links absolute, by the
`Repository` of `[project.urls]`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
RELEASE: Final = ROOT / "build/release"
REPOSITORY: Final = "Repository"
_LINK: Final = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!\w+:|#)([^)\s]+)\)")
_SECTION: Final = re.compile(r"^## \[(.+?)\].*\n", re.MULTILINE)


def absolute(readme: str, repository: str, tag: str) -> str:
    """The README with its links to files of the repository as addresses."""

    def address(link: re.Match[str]) -> str:
        image, shown, target = link.groups()
        return f"{image}[{shown}]({repository}/{'raw' if image else 'blob'}/{tag}/{target})"

    return _LINK.sub(address, readme)


def notes(changelog: str, version: str) -> tuple[str, str]:
    """The heading and text of the version's section, or of what is not released yet."""
    parts = _SECTION.split(changelog)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    heading = version if version in sections else "Unreleased"
    return heading, sections[heading].strip() + "\n"


def copied(project: dict[str, Any], folder: Path) -> None:
    """Copy what an sdist holds, the README with absolute links where the address is known."""
    included = project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    for name in ["pyproject.toml", *(path.lstrip("/") for path in included)]:
        source = ROOT / name
        if source.is_dir():
            unwanted = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, folder / name, ignore=unwanted)
        else:
            shutil.copy(source, folder / name)
    repository = project["project"]["urls"].get(REPOSITORY)
    if repository:
        path = folder / "README.md"
        tag = f"v{project['project']['version']}"
        path.write_text(absolute(path.read_text("utf-8"), repository.rstrip("/"), tag), "utf-8")


def warnings(project: dict[str, Any], heading: str) -> list[str]:
    """What a person should see to before these files are published."""
    found: list[str] = []
    if REPOSITORY not in project["project"]["urls"]:
        found.append(
            f"pyproject.toml names no {REPOSITORY} in [project.urls]: the links of the README "
            "lead nowhere on a package index."
        )
    if heading != project["project"]["version"]:
        found.append(
            f"CHANGELOG.md has no section [{project['project']['version']}]: NOTES.md has what is "
            f"under [{heading}]."
        )
    return found


def main() -> None:
    """Build, check, and write the notes."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    shutil.rmtree(RELEASE, ignore_errors=True)
    RELEASE.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="lango-") as folder:
        copied(project, Path(folder))
        subprocess.run(["uv", "build", "--quiet", "--out-dir", RELEASE, folder], check=True)
    built = sorted([*RELEASE.glob("*.whl"), *RELEASE.glob("*.tar.gz")])
    subprocess.run(["uv", "tool", "run", "twine", "check", "--strict", *built], check=True)
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    heading, text = notes(changelog, project["project"]["version"])
    (RELEASE / "NOTES.md").write_text(text, "utf-8")
    for path in [*built, RELEASE / "NOTES.md"]:
        print(path.relative_to(ROOT))
    for warning in warnings(project, heading):
        print(f"warning: {warning}", file=sys.stderr)


if __name__ == "__main__":
    main()
