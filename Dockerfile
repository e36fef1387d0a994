# The appliance in one image: docker run -v agentlip:/data -p 127.0.0.1:7464:7464 IMAGE
#
#   --target appliance          the appliance; its exports are JSON Lines
#   --target appliance-export   with Parquet too, for exports and reports
#
# Builds alike with the classic builder and with BuildKit, so nothing here needs the newer
# syntax. BASE_IMAGE is any Debian bookworm; `ops/image` finds or makes one.
#
# Dependencies and the product's code are layers of their own, made of files with one fixed
# time: equal files make equal layers, whenever they are built.
ARG BASE_IMAGE=debian:bookworm-slim

FROM ${BASE_IMAGE} AS base
ENV LANG=C.UTF-8 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# Python's own tests and the texts of its help() are not needed.
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates libseccomp2 python3 tini \
 && rm -rf /usr/lib/python3.11/test /usr/lib/python3.11/pydoc_data \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/lib/dpkg/*-old \
        /var/log/apt /var/log/dpkg.log

FROM base AS dependencies
# This machine's package index, if it has its own; the stage is thrown away.
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
ARG PIP_DEFAULT_TIMEOUT
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_NO_COMPILE=1
# /opt/build builds and installs; /opt/agentlip has only what runs.
RUN apt-get update \
 && apt-get install -y --no-install-recommends binutils python3-venv \
 && python3 -m venv /opt/build \
 && python3 -m venv --without-pip /opt/agentlip
COPY ops/image-layer /usr/local/bin/image-layer
COPY requirements/build.txt requirements/appliance.txt /build/requirements/
RUN /opt/build/bin/pip install --require-hashes --only-binary :all: -r /build/requirements/build.txt \
 && /opt/build/bin/pip --python /opt/agentlip/bin/python install --require-hashes --only-binary :all: \
        -r /build/requirements/appliance.txt \
 && find /opt/agentlip -name '*.cpython-*.so' -exec strip --strip-debug {} + \
 && image-layer /opt/agentlip

FROM dependencies AS code
COPY pyproject.toml setup.py README.md /build/
COPY appliance /build/appliance
COPY doctor /build/doctor
COPY migrations /build/migrations
COPY docs/reference/checks.md /build/docs/reference/
COPY docs/reference/checks /build/docs/reference/checks
# The commit and its date, which `agentlip --version` prints.
ARG COMMIT
RUN AGENTLIP_COMMIT="$COMMIT" /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /build/code /build \
 && /opt/build/bin/pip --python /opt/agentlip/bin/python install --no-deps --root /layers/code /build/code/*.whl \
 && image-layer /layers/code

FROM base AS scripts
COPY ops/docker-entrypoint /scripts/
RUN touch --date @315532800 /scripts/*

FROM base AS runtime
LABEL org.opencontainers.image.title="Agentlip Appliance" \
      org.opencontainers.image.description="Self-hosted coordination appliance for AI agents" \
      org.opencontainers.image.licenses="MIT"
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /data --shell /usr/sbin/nologin agentlip \
 && install -d -o agentlip -g agentlip -m 0750 /data /run/agentlip
COPY --from=dependencies /opt/agentlip /opt/agentlip
COPY --from=scripts /scripts/docker-entrypoint /usr/local/bin/docker-entrypoint
ENV PATH=/opt/agentlip/bin:$PATH HOME=/data
WORKDIR /data
USER 10001:10001
VOLUME /data
EXPOSE 7464
# Healthy means ready: `status` asks /-/ready, and fails with its reason.
HEALTHCHECK --interval=15s --timeout=10s --start-period=15s --retries=3 \
    CMD ["agentlipd", "status", "--workspace", "/data"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["tini", "--", "docker-entrypoint"]
CMD ["up"]

FROM runtime AS appliance
COPY --from=code /layers/code/opt/agentlip /opt/agentlip

# The classic builder also builds stages that its target does not need, but none after it.
FROM dependencies AS export
COPY requirements/export.txt /build/requirements/
RUN /opt/build/bin/pip --python /opt/agentlip/bin/python install --require-hashes --only-binary :all: \
        --root /layers/export -r /build/requirements/export.txt \
 && image-layer /layers/export

FROM runtime AS appliance-export
COPY --from=export /layers/export/opt/agentlip /opt/agentlip
COPY --from=code /layers/code/opt/agentlip /opt/agentlip

# Without --target: the small one.
FROM appliance
