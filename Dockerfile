# The appliance in one image: docker run -v agentlip:/data -p 127.0.0.1:7464:7464 IMAGE
#
# Builds alike with the classic builder and with BuildKit, so nothing here needs the newer
# syntax. BASE_IMAGE is any Debian bookworm; `ops/image` finds or makes one.
ARG BASE_IMAGE=debian:bookworm-slim

FROM ${BASE_IMAGE} AS base
ENV LANG=C.UTF-8 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates libseccomp2 python3 tini \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/dpkg.log

FROM base AS build
# This machine's package index, if it has its own; the stage is thrown away.
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
ARG PIP_DEFAULT_TIMEOUT
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
RUN apt-get update \
 && apt-get install -y --no-install-recommends gcc libc6-dev python3-dev python3-venv \
 && python3 -m venv /opt/agentlip
# Dependencies first: this layer changes with the locks, not with the code.
COPY requirements/build.txt requirements/appliance.txt requirements/fast.txt requirements/export.txt /build/requirements/
RUN /opt/agentlip/bin/pip install --require-hashes --only-binary :all: \
        -r /build/requirements/build.txt -r /build/requirements/appliance.txt \
        -r /build/requirements/export.txt \
 && /opt/agentlip/bin/pip install --require-hashes --no-deps --no-build-isolation \
        -r /build/requirements/fast.txt
COPY pyproject.toml setup.py README.md /build/
COPY appliance /build/appliance
COPY doctor /build/doctor
COPY migrations /build/migrations
RUN /opt/agentlip/bin/pip install --no-deps --no-build-isolation /build \
 && /opt/agentlip/bin/pip uninstall -q -y setuptools pip \
 && python3 -m compileall -q -j 0 /opt/agentlip/lib

FROM base
LABEL org.opencontainers.image.title="Agentlip Appliance" \
      org.opencontainers.image.description="Self-hosted coordination appliance for AI agents" \
      org.opencontainers.image.licenses="MIT"
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /data --shell /usr/sbin/nologin agentlip \
 && install -d -o agentlip -g agentlip -m 0750 /data
COPY --from=build /opt/agentlip /opt/agentlip
COPY ops/docker-entrypoint /usr/local/bin/docker-entrypoint
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
