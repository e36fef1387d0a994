# Every command a person types here. Bare `just` is what must pass before a commit.
# No `just`? `ops/env dev` puts one into .venv/bin.

# what must pass before a commit: lint, types, imports, quick tests
default:
    ops/test fast

# the Python environment in .venv, with tests and linters
setup:
    ops/env dev

# lint, format, types, import contracts
check:
    ops/env dev
    .venv/bin/ruff check .
    .venv/bin/ruff format --check .
    .venv/bin/mypy
    .venv/bin/lint-imports

# fix the findings that ruff can fix
fix:
    ops/env dev
    .venv/bin/ruff check --fix .
    .venv/bin/ruff format .

# the quick tests, or those named: just test tests/unit -k clock
test *ARGS:
    ops/env dev
    .venv/bin/python -m pytest -m "not slow and not container" {{ ARGS }}

# every test, containers included
test-all *ARGS:
    ops/test all {{ ARGS }}

# what CI runs
ci:
    .ci/run

# start the appliance in the background
up *ARGS:
    ops/up {{ ARGS }}

# stop it
down *ARGS:
    ops/down {{ ARGS }}

# run it here, until Ctrl+C
run *ARGS:
    ops/up --foreground {{ ARGS }}

# is this workspace well?
doctor *ARGS:
    ops/env appliance
    .venv/bin/agentlip doctor {{ ARGS }}

# feed real history through a running appliance
demo *ARGS:
    ops/demo {{ ARGS }}

# measure
bench *ARGS:
    ops/env dev
    .venv/bin/python -m tests.bench {{ ARGS }}

# the models and row tuples of all tables, made from the migrations
models:
    ops/env dev
    .venv/bin/python -m ops.write_models

# what the subsystems declare, the paths of roles, the annotated reference settings, and the roles for Nix, made from the code
settings:
    ops/env dev
    .venv/bin/python -m ops.write_declared
    .venv/bin/python -m ops.write_paths
    .venv/bin/python -m ops.write_settings

# the generated pages of docs/, made from the code
docs:
    ops/env dev
    .venv/bin/python -m ops.write_docs

# the rules for Prometheus, the dashboards and the runbook, made from ops/monitoring
monitoring:
    ops/env dev
    .venv/bin/python -m ops.monitoring.write

# the documentation site, in .cache/site; or live on this machine: just docs-site serve
docs-site COMMAND="build --strict":
    ops/env docs
    NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs {{ COMMAND }}

# the pictures of the web UI in docs/pictures; look at them before you commit them
pictures:
    ops/env dev
    .venv/bin/python -m ops.ui_pictures

# the pictures of the dashboards in docs/pictures, from a Prometheus that ops/test has unpacked
dashboard-pictures:
    ops/env dev
    .venv/bin/python -m tests.support.dashboardpictures

# texts that are not plain English, in all files or in those named: just prose appliance/hub
prose *ARGS:
    ops/env dev
    .venv/bin/python -m tests.contract.prose {{ ARGS }}

# add new shapes to what other programs may rely on; refuses other changes
freeze:
    ops/env dev
    .venv/bin/python -m tests.contract.freeze

# known advisories about pinned dependencies, from a folder of OSV records; nothing is downloaded
advisories FOLDER:
    ops/env dev
    .venv/bin/python -m ops.advisories {{ FOLDER }}

# build the image
image TAG="agentlip:local":
    ops/image {{ TAG }}

# build the image of the Spark jobs
spark TAG="agentlip-spark:local":
    ops/image --spark {{ TAG }}

# remake requirements/ from pyproject.toml; --upgrade for newer versions
lock *ARGS:
    ops/env dev
    ops/lock {{ ARGS }}

# the next numbered migration of a store: just migration hub add_threads
migration STORE NAME:
    ops/migration {{ STORE }} {{ NAME }}
