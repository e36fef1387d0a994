#!/bin/sh
# What the image does: its first argument is a job, a standalone role, or a Kubernetes one.
#
#   JOB ARGUMENTS...        JOB --help; jobs: ingest, activity, archive, audit, delivery,
#                           digest, erase
#   master                  a standalone master: 7077
#   worker spark://M:7077   a standalone worker with the container's memory
#   serve SOCKET            runs the jobs that an appliance requests over a socket
#   history DIR             the history server over event logs, pages on 18080
#   driver ARGUMENTS...     what spark-submit starts on Kubernetes
#   executor                what a Kubernetes driver starts
set -eu

java_options() {
    env | sed -n 's/^SPARK_JAVA_OPT_\([0-9]*\)=/\1 /p' | sort -n | cut -d' ' -f2-
}

# The address at which the others reach this container.
address() { hostname -i | cut -d' ' -f1; }

# The secret that authenticates and encrypts every connection of a standalone cluster.
export SPARK_SECRET_FILE="${SPARK_SECRET_FILE-/run/secrets/spark-secret}"
[ -e "$SPARK_SECRET_FILE" ] || SPARK_SECRET_FILE=

# Writes the settings of a master or a worker. Without a secret neither starts, because everybody
# who reaches its port could run code here.
daemon_settings() {
    if [ -z "$SPARK_SECRET_FILE" ]; then
        echo "Error: a cluster needs a secret that all its processes share" >&2
        echo "  hint: mount one at /run/secrets/spark-secret (openssl rand -hex 32), or set SPARK_SECRET_FILE" >&2
        exit 2
    fi
    DAEMON_SETTINGS=${SPARK_LOCAL_DIRS:-/tmp}/daemon.properties
    printf '%s\n' \
        "spark.authenticate true" \
        "spark.network.crypto.enabled true" \
        "spark.ui.killEnabled false" >"$DAEMON_SETTINGS"
    _SPARK_AUTH_SECRET=$(cat "$SPARK_SECRET_FILE") # not in arguments, which other users can list
    SPARK_DAEMON_MEMORY=${SPARK_DAEMON_MEMORY:-256m}
    export _SPARK_AUTH_SECRET SPARK_DAEMON_MEMORY
}

# The share of the container's memory that a worker offers to executors.
worker_memory() { python3 -c "from spark import session; print(session.heap())"; }

role=${1:-help}
[ $# -eq 0 ] || shift
case $role in
    help | --help | -h)
        sed -n '2,11s/^# \{0,1\}//p' "$0"
        ;;
    master)
        daemon_settings
        exec spark-class org.apache.spark.deploy.master.Master \
            --host "$(address)" --port 7077 --properties-file "$DAEMON_SETTINGS" "$@"
        ;;
    worker)
        daemon_settings
        exec spark-class org.apache.spark.deploy.worker.Worker \
            --host "$(address)" --work-dir "${SPARK_LOCAL_DIRS:-/tmp}/work" \
            --properties-file "$DAEMON_SETTINGS" --memory "${SPARK_WORKER_MEMORY:-$(worker_memory)}" "$@"
        ;;
    serve)
        cd /data # the workspace
        mkdir -p jobs
        for file in /opt/agentlip/jobs/*; do
            [ -e "jobs/${file##*/}" ] || cp "$file" jobs/
        done
        exec python3 -m appliance.jobs.spark_service serve "${1:-/run/agentlip/spark}" /opt/entrypoint.sh
        ;;
    history)
        export SPARK_HISTORY_OPTS="-Dspark.history.fs.logDirectory=file://${1:-$SPARK_EVENT_LOG_DIR}"
        # shellcheck disable=SC2086 # options, one a word
        exec java -cp "$SPARK_HOME/conf:$SPARK_HOME/jars/*" $SPARK_HISTORY_OPTS \
            org.apache.spark.deploy.history.HistoryServer
        ;;
    driver)
        exec spark-submit --deploy-mode client \
            --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
            --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" "$@"
        ;;
    executor)
        # shellcheck disable=SC2046 # options, one a word
        exec java $(java_options) -Xms"$SPARK_EXECUTOR_MEMORY" -Xmx"$SPARK_EXECUTOR_MEMORY" \
            -cp "$SPARK_HOME/conf:$SPARK_HOME/jars/*:${SPARK_CLASSPATH:-}" \
            org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
            --driver-url "$SPARK_DRIVER_URL" \
            --executor-id "$SPARK_EXECUTOR_ID" \
            --cores "$SPARK_EXECUTOR_CORES" \
            --app-id "$SPARK_APPLICATION_ID" \
            --hostname "$SPARK_EXECUTOR_POD_IP" \
            --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
            --podName "$SPARK_EXECUTOR_POD_NAME"
        ;;
    sh | bash | python3 | spark-submit | spark-class)
        exec "$role" "$@"
        ;;
    *)
        exec python3 /opt/agentlip/spark/run.py "$role" "$@"
        ;;
esac
