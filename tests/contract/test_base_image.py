"""`ops/engine` prints a base image that was pulled with its digest, and never another one."""

import os
import subprocess

import pytest

from tests.contract.test_walls import ROOT

DOCKER = """#!/bin/sh
# A stand-in: $FOLDER/digest is that of the public image, once it was pulled.
case "$1 $2" in
    "version "*) echo 24 ;;
    "image inspect")
        case "$*" in
            *localbase*) exit 0 ;;
            *) [ -e "$FOLDER/here" ] && cat "$FOLDER/here" ;;
        esac ;;
    "pull "*) [ -e "$FOLDER/registry" ] && cp "$FOLDER/registry" "$FOLDER/here" ;;
esac
"""


@pytest.fixture
def base(tmp_path):
    docker = tmp_path / "docker"
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"

    def run(**more):
        env = {**os.environ, "PATH": path, "FOLDER": str(tmp_path), "TMPDIR": str(tmp_path), **more}
        done = subprocess.run([ROOT / "ops/engine"], env=env, capture_output=True, text=True,
                              timeout=60, check=True)  # fmt: skip
        return done.stdout

    return run


def test_an_image_that_is_here_is_named_with_its_digest(base, tmp_path):
    (tmp_path / "here").write_text("debian@sha256:aa\nmirror/debian@sha256:aa\n")
    assert base() == "debian@sha256:aa\n"


def test_a_local_image_of_that_name_is_not_the_public_one(base, tmp_path):
    (tmp_path / "here").write_text("\n")
    assert base() == "localbase/debian:bookworm-slim\n"
