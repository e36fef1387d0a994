#!/bin/sh
# What the image does: its first argument is a job, a standalone role, or a Kubernetes one.
#
#   JOB ARGUMENTS...        ingest, activity, audit: see JOB --help
#   master                  a standalone master: 7077, pages on 8080
#   worker spark://M:7077   a standalone worker
#   connect                 a Spark Connect server on 15002
#   history DIR             the history server over event logs, pages on 18080
#   driver ARGUMENTS...     what spark-submit starts on Kubernetes
#   executor                what a Kubernetes driver starts
set -eu

java_options() {
    env | sed -n 's/^SPARK_JAVA_OPT_\([0-9]*\)=/\1 /p' | sort -n | cut -d' ' -f2-
}

# The address at which the others reach this container.
address() { hostname -i | cut -d' ' -f1; }

role=${1:-help}
[ $# -eq 0 ] || shift
case $role in
    help | --help | -h)
        sed -n '2,11s/^# \{0,1\}//p' "$0"
        ;;
    master)
        exec spark-class org.apache.spark.deploy.master.Master \
            --host "$(address)" --port 7077 --webui-port 8080 "$@"
        ;;
    worker)
        exec spark-class org.apache.spark.deploy.worker.Worker \
            --host "$(address)" --work-dir "${SPARK_LOCAL_DIRS:-/tmp}/work" "$@"
        ;;
    connect)
        exec spark-submit --class org.apache.spark.sql.connect.service.SparkConnectServer \
            --name agentlip-connect --master "${SPARK_MASTER:-local[*]}" \
            --conf spark.connect.grpc.binding.address=0.0.0.0 \
            --conf spark.sql.session.timeZone=UTC spark-internal "$@"
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
