#!/usr/bin/env bash
# A real SLURM cluster of virtual nodes on one machine, for the tests beside this file and for bench/slurm.py.
#
#   cluster.sh up            start what is not running: munge, MariaDB, slurmdbd, slurmctld and a slurmd for each node
#   cluster.sh down [wipe]   stop all of it; wipe: and forget its jobs and accounts
#   cluster.sh crash NODE    power the node off: its slurmd and everything that runs on it is gone at once; up boots it
#   cluster.sh slow NODE P   what runs on it is frozen for all but P % of the time from now on, so that it is slow beside
#                            the others whatever else the machine has to do (control groups, version 1); up ends it
#   cluster.sh stop|start slurmctld|slurmdbd
#   cluster.sh env           what a shell needs to talk to it: eval "$(tests/slurm/cluster.sh env)"
#
# Needs root and Debian's or Ubuntu's packages (conftest.py says which). Everything it writes is in
# $DDLBENCH_SLURM_STATE (/var/tmp/ddlbench-slurm), daemons' configuration included, and its ports are its own, from
# $DDLBENCH_SLURM_PORT (16816) on: a SLURM that this machine belongs to is not touched, nor is another such cluster with
# another folder and other ports. Ports of six clusters differ by 10: 16816, 16826, ... 16866; then their jobs' ids differ
# too. Another site's cluster: DDLBENCH_SLURM_ACCOUNTING=none keeps no accounts, DDLBENCH_SLURM_PROCTRACK=cgroup follows
# processes by control groups (one cluster of a machine may, their names are the nodes'), DDLBENCH_SLURM_KILLWAIT=30 is
# SLURM's default, DDLBENCH_SLURM_EXTRA has more lines of slurm.conf; each needs a `down` before.
#
# All nodes share the machine's processes, files and network. Each has a host name of its own (a UTS namespace), knows
# the others' names (/etc/hosts in a mount namespace) and finds the configuration where nodes have it (/etc/slurm).
set -euo pipefail
STATE=${DDLBENCH_SLURM_STATE:-/var/tmp/ddlbench-slurm}
PORT=${DDLBENCH_SLURM_PORT:-16816} # the first of ten
export DDLBENCH_SLURM_STATE=$STATE # by which each daemon is known: `alive`
# A job's ranks meet at a port that follows from its id (train/place.py). No two clusters here give the same id: each has
# 700 of its own, and takes them in turn.
FIRST_JOB=$((PORT / 10 % 6 * 700 + 1))
NODES=4 GPUS=4 CORES=16 MEMORY_MB=32000
FREEZER=/sys/fs/cgroup/freezer PERIOD_MS=200
ETC=$STATE/etc RUN=$STATE/run LOG=$STATE/log SQL="--user=root --socket=$STATE/mysql/socket"
ACCOUNTING=${DDLBENCH_SLURM_ACCOUNTING:-slurmdbd} PROCTRACK=${DDLBENCH_SLURM_PROCTRACK:-linuxproc}
export SLURM_CONF=$ETC/slurm.conf

configure() {
    mkdir -p "$ETC" "$RUN" "$LOG" "$STATE"/{spool,controller,gpus,munge}
    chmod 755 "$STATE"
    local here gpu
    here=$(hostname -s)
    # A GPU is a device file that can be opened; /dev/null's numbers do.
    for gpu in $(seq 0 $((GPUS - 1))); do
        [ -c "$STATE/gpus/$gpu" ] || mknod -m 666 "$STATE/gpus/$gpu" c 1 3
    done
    cat >"$ETC/slurm.conf" <<END
ClusterName=ddlbench
SlurmctldHost=$here(127.0.0.1)
SlurmctldPort=$((PORT + 1))
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# A job that is queued again starts when its first credential has expired: by default after two minutes.
AuthInfo=socket=$STATE/munge/socket,cred_expire=10
SlurmctldPidFile=$RUN/slurmctld.pid
SlurmdPidFile=$RUN/%n.pid
SlurmdSpoolDir=$STATE/spool/%n
StateSaveLocation=$STATE/controller
FirstJobId=$FIRST_JOB
MaxJobId=$((FIRST_JOB + 699))
MaxJobCount=700
SlurmctldLogFile=$LOG/slurmctld.log
SlurmdLogFile=$LOG/%n.log
ProctrackType=proctrack/$PROCTRACK
TaskPlugin=task/none
# Memory is watched by asking each second, where cgroups cannot be had.
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=1
JobAcctGatherParams=OverMemoryKill
AccountingStorageType=accounting_storage/$ACCOUNTING
$([ "$ACCOUNTING" = none ] || echo "AccountingStorageHost=127.0.0.1
AccountingStoragePort=$((PORT + 3))
AccountingStoragePass=$STATE/munge/socket
AccountingStorageTRES=gres/gpu
AccountingStorageEnforce=associations,limits")
ReturnToService=2
SlurmdTimeout=10
KillWait=${DDLBENCH_SLURM_KILLWAIT:-5}
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=2,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=2000
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
EnforcePartLimits=ALL
# Two switches under one: jobs are told where their nodes hang.
TopologyPlugin=topology/tree
MpiDefault=none
GresTypes=gpu
SlurmdParameters=config_overrides
$(for n in $(seq $NODES); do
        echo "NodeName=node$n NodeAddr=127.0.0.1 Port=$((PORT + 4 + n)) CPUs=$CORES RealMemory=$MEMORY_MB Gres=gpu:$GPUS"
    done)
# JUWELS Booster's names; scavenge gives way to all others.
PartitionName=booster Nodes=ALL Default=YES MaxTime=24:00:00 DefaultTime=00:10:00 PriorityTier=10 PreemptMode=OFF
PartitionName=develbooster Nodes=ALL MaxTime=02:00:00 DefaultTime=00:10:00 PriorityTier=10 PreemptMode=OFF
PartitionName=scavenge Nodes=ALL MaxTime=02:00:00 DefaultTime=00:10:00 PriorityTier=1 PreemptMode=REQUEUE
${DDLBENCH_SLURM_EXTRA:-}
END
    cat >"$ETC/topology.conf" <<END
SwitchName=leaf1 Nodes=node[1-$((NODES / 2))]
SwitchName=leaf2 Nodes=node[$((NODES / 2 + 1))-$NODES]
SwitchName=root Switches=leaf[1-2]
END
    cat >"$ETC/gres.conf" <<END
AutoDetect=off
NodeName=node[1-$NODES] Name=gpu File=$STATE/gpus/[0-$((GPUS - 1))]
END
    printf 'CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\n' >"$ETC/cgroup.conf"
    cat >"$ETC/slurmdbd.conf" <<END
AuthType=auth/munge
AuthInfo=socket=$STATE/munge/socket
DbdHost=$here
DbdAddr=127.0.0.1
DbdPort=$((PORT + 3))
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=$PORT
StorageUser=slurm
StoragePass=slurm
LogFile=$LOG/slurmdbd.log
PidFile=$RUN/slurmdbd.pid
END
    chmod 600 "$ETC/slurmdbd.conf"
    cat >"$STATE/my.cnf" <<END
[mysqld]
user=mysql
datadir=$STATE/mysql
socket=$STATE/mysql/socket
pid-file=$RUN/mariadbd.pid
log-error=$STATE/mysql/log
port=$PORT
bind-address=127.0.0.1
innodb_lock_wait_timeout=900
END
    { echo "127.0.0.1 localhost $here"; for n in $(seq $NODES); do echo "127.0.0.1 node$n"; done; } >"$STATE/hosts"
}

alive() { # PIDFILE PROGRAM: is that process still that program, and not another cluster's?
    local process of
    process=/proc/$(cat "$1" 2>/dev/null)
    [ -s "$1" ] && [ "$(cat "$process/comm" 2>/dev/null)" = "$2" ] || return 1
    of=$(tr '\0' '\n' 2>/dev/null <"$process/environ" | sed -n 's/^DDLBENCH_SLURM_STATE=//p')
    [ "${of:-$STATE}" = "$STATE" ]
}

wait_for() { # 30 s, and as often longer as programs share a core
    local start=$SECONDS load
    while
        load=$(cut -d. -f1 /proc/loadavg)
        [ $((SECONDS - start)) -lt $((30 + 30 * load / $(nproc))) ]
    do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.25
    done
    echo "cluster.sh: in vain for $((SECONDS - start)) s: $*; logs are in $LOG" >&2
    return 1
}

stop() { # PIDFILE PROGRAM
    local pid
    if alive "$1" "$2"; then
        pid=$(cat "$1")
        kill "$pid" 2>/dev/null || true # it may have ended this moment
        for _ in $(seq 150); do alive "$1" "$2" || break; sleep 0.1; done
        ! alive "$1" "$2" || kill -9 "$pid" 2>/dev/null || true
    fi
    rm -f "$1"
}

start_munge() {
    ! alive "$RUN/munged.pid" munged || return 0
    if [ ! -s "$STATE/munge/key" ]; then
        dd if=/dev/urandom of="$STATE/munge/key" bs=128 count=1 status=none
        chmod 400 "$STATE/munge/key"
    fi
    munged --force --key-file="$STATE/munge/key" --socket="$STATE/munge/socket" --pid-file="$RUN/munged.pid" \
        --log-file="$LOG/munged.log" --seed-file="$STATE/munge/seed"
}

start_database() {
    ! alive "$RUN/mariadbd.pid" mariadbd || return 0
    chmod 777 "$RUN"
    if [ ! -e "$STATE/mysql.made" ]; then
        rm -rf "$STATE/mysql" # left by one that was killed while it made it
        install -d -o mysql -g mysql "$STATE/mysql"
        mariadb-install-db --defaults-file="$STATE/my.cnf" --auth-root-authentication-method=normal --skip-test-db \
            >"$LOG/mariadb-install.log" 2>&1
        touch "$STATE/mysql.made"
    fi
    setsid mariadbd --defaults-file="$STATE/my.cnf" </dev/null >"$LOG/mariadbd.log" 2>&1 &
    # shellcheck disable=SC2086
    wait_for timeout 5 mariadb-admin $SQL ping
    # shellcheck disable=SC2086
    mariadb $SQL -e "CREATE DATABASE IF NOT EXISTS slurm_acct_db; CREATE USER IF NOT EXISTS slurm@'127.0.0.1'
        IDENTIFIED BY 'slurm', slurm@localhost IDENTIFIED BY 'slurm';
        GRANT ALL ON slurm_acct_db.* TO slurm@'127.0.0.1', slurm@localhost"
}

start_slurmdbd() {
    alive "$RUN/slurmdbd.pid" slurmdbd || slurmdbd
    wait_for timeout 5 sacctmgr -n list cluster
}

add_account() {
    sacctmgr -n list cluster format=cluster | grep -qw ddlbench || sacctmgr -iQ add cluster ddlbench >/dev/null
    sacctmgr -n show assoc account=project user=root format=user | grep -qw root && return
    sacctmgr -iQ add account project Cluster=ddlbench >/dev/null
    sacctmgr -iQ add user root Account=project DefaultAccount=project >/dev/null
}

start_slurmctld() {
    alive "$RUN/slurmctld.pid" slurmctld || slurmctld
    wait_for timeout 5 scontrol ping
}

start_node() {
    ! alive "$RUN/$1.pid" slurmd || return 0
    mkdir -p /etc/slurm
    unshare --uts --mount --propagation private bash -c "hostname $1 && mount --bind $STATE/hosts /etc/hosts &&
        mount --bind $ETC /etc/slurm && unset SLURM_CONF && exec slurmd -N $1" </dev/null >"$LOG/$1.out" 2>&1
}

slow() { # NODE PERCENT
    local group=$FREEZER/ddlbench-$PORT-$1 run=$(($2 * PERIOD_MS / 100))
    end_slow
    mkdir -p "$group"
    cat "$RUN/$1.pid" >"$group/cgroup.procs"
    # shellcheck disable=SC2016
    setsid bash -c 'exec {never}<> <(:)
        wait_ms() { read -r -t "$(printf 0.%03d "$1")" -u "$never" || true; }
        while echo FROZEN >"$1/freezer.state"; do wait_ms "$3"; echo THAWED >"$1/freezer.state"; wait_ms "$2"; done' \
        slow "$group" "$run" $((PERIOD_MS - run)) </dev/null >"$LOG/slow-$1" 2>&1 &
    echo $! >"$RUN/slow-$1.pid"
}

gone() { # PID: it runs no more, and does nothing any more
    local state
    state=$(sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null) || return 0
    [ -z "$state" ] || [ "$state" = Z ]
}

leave() { # GROUP: its processes go back to where they were; some may have started others meanwhile
    local process
    while read -r process; do
        echo "$process" >"$FREEZER/cgroup.procs" || true # it has ended
    done <"$1/cgroup.procs"
    rmdir "$1"
}

end_slow() {
    local group pid
    for group in "$FREEZER/ddlbench-$PORT"-node*; do
        [ -d "$group" ] || continue
        pid=$RUN/slow-${group##*-}.pid
        if [ -s "$pid" ]; then
            kill "$(cat "$pid")" 2>/dev/null || true
            wait_for gone "$(cat "$pid")" # or it may freeze them once more
        fi
        rm -f "$pid"
        echo THAWED >"$group/freezer.state"
        wait_for leave "$group"
    done
}

ready() {
    scontrol update nodename="node[1-$NODES]" state=resume || true # where a crash or a test left it down
    [ "$(sinfo -h -N -p booster -t idle,mixed,allocated -o %N | wc -l)" = "$NODES" ]
}

up() {
    configure
    end_slow
    start_munge
    if [ "$ACCOUNTING" != none ]; then
        start_database
        start_slurmdbd
        add_account
    fi
    start_slurmctld
    for n in $(seq $NODES); do start_node "node$n"; done
    wait_for ready
}

down() {
    for n in $(seq $NODES); do stop "$RUN/node$n.pid" slurmd; done
    stop "$RUN/slurmctld.pid" slurmctld
    stop "$RUN/slurmdbd.pid" slurmdbd
    stop "$RUN/mariadbd.pid" mariadbd
    stop "$RUN/munged.pid" munged
    [ "${1:-}" != wipe ] || rm -rf "$STATE"
}

of_node() { # SPACE: ids of the processes of the node with this UTS namespace
    local process
    for process in /proc/[0-9]*; do
        [ "$(readlink "$process/ns/uts" 2>/dev/null)" != "$1" ] || echo "${process#/proc/}"
    done
}

crash() {
    local space before="" now
    space=$(readlink "/proc/$(cat "$RUN/$1.pid")/ns/uts")
    [ -n "$space" ] && [ "$space" != "$(readlink /proc/self/ns/uts)" ]
    # Power goes for all at once: a slurmd that outlives a job's script by a moment tells SLURM that the job has failed.
    while now=$(of_node "$space") && [ "$now" != "$before" ]; do # one may have started another that was not listed yet
        before=$now
        # shellcheck disable=SC2086
        kill -STOP $now 2>/dev/null || true
    done
    while now=$(of_node "$space") && [ -n "$now" ]; do
        # shellcheck disable=SC2086
        kill -KILL $now 2>/dev/null || true
    done
    rm -f "$RUN/$1.pid"
}

case "${1:-}:${2:-}" in
    up:) up ;;
    slow:node*) slow "$2" "$3" ;;
    down:*) down "${2:-}" ;;
    crash:node*) crash "$2" ;;
    stop:slurmctld | stop:slurmdbd) stop "$RUN/$2.pid" "$2" ;;
    start:slurmctld | start:slurmdbd) "start_$2" ;;
    env:) echo "export SLURM_CONF=$SLURM_CONF" ;;
    *) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
esac
