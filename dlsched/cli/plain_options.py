"""The options of frequent commands for `plain_lines`, made by .ci/plain_options.py."""

from __future__ import annotations

COMMANDS = {
    "submit": """
function jobs.submit submit_command
words words command
group daemon DaemonOptions
value wrap --wrap
value source --from
value dag --dag
yes test_only --test-only
yes require_sla --require-sla
value request_id --request-id
yes as_json --json
yes logs --logs
yes interactive --interactive
value service --service
yes ignore_unknown --ignore-unknown-directives
value daemon.daemon --daemon
yes daemon.insecure --insecure-loopback
value daemon.wait_for_daemon --daemon-wait
value job_name -J --job-name --name
value output -o --output
value error -e --error
yes label --label
yes no_label --no-label
value input -i --input
value chdir -D --chdir
value open_mode --open-mode
value partition -p --partition
value account -A --account --vc
value qos -q --qos --priority-class
value priority --priority
value nice --nice
value gpus -G --gpus
value gpus_per_node --gpus-per-node
value gres --gres
value gpus_per_task --gpus-per-task
value min_gpus --min-gpus
value max_gpus --max-gpus
value share --share
value guarantee --guarantee
yes opportunistic --opportunistic
value constraint -C --constraint
value nodes -N --nodes
value ntasks -n --ntasks
value ntasks_per_gpu --ntasks-per-gpu
value gpu_bind --gpu-bind
value distribution -m --distribution
value ntasks_per_node --ntasks-per-node --tasks-per-node
value cpus_per_task -c --cpus-per-task
value cpus --cpus
value cpus_per_gpu --cpus-per-gpu
value mem --mem
value mem_per_cpu --mem-per-cpu
value mem_per_gpu --mem-per-gpu
value tmp --tmp
value nodelist -w --nodelist
value reservation --reservation
value exclude -x --exclude
yes exclusive --exclusive
value time -t --time
value time_min --time-min
value begin --begin
value deadline --deadline
value deadline_value --deadline-value
value deadline_kind --deadline-kind
yes best_effort --best-effort
value sla --sla
value expected --expected
value dependency -d --dependency
value kill_on_invalid_dep --kill-on-invalid-dep
yes keep_on_broken_dependency --keep-on-broken-dependency
value array -a --array
value sweep --sweep
value sweep_concurrent --sweep-concurrent
value halving --halving
value tasks --tasks
value tokens --tokens
yes hold -H --hold
yes requeue --requeue
yes no_requeue --no-requeue
yes requeue_on_timeout --requeue-on-timeout
value retries --retries
value gpu_retries --gpu-retries
yes retry_elsewhere --retry-elsewhere
value resume_from --resume-from
value keep --keep
value signal --signal
value grace --grace
value export --export
value launch --launch
value on_hang --on-hang
value hang_factor --hang-factor
value fence --fence
value suspend --suspend
value model --model
value cell --cell
value batch_size --batch-size
value total_iterations --total-iterations
value target_accuracy --target-accuracy
value stop_when --stop-when
value stop_under_load --stop-under-load
value weight --weight
yes adaptive --adaptive
yes fixed_batch --fixed-batch
yes in_place --in-place
many set --set
value comment --comment
value notify --notify
value mail_type --mail-type
value notify_url --notify-url
value mail_user --mail-user
value container --container --container-image
value container_mounts --container-mounts
yes no_slurm_env --no-slurm-env
yes open_ended --open-ended
yes wait -W --wait
yes parsable --parsable
""",
    "queue": """
function jobs.queue queue_command
group options FilterOptions
group output ListingOptions
group daemon DaemonOptions
many jobs --job -j
many options.users --user -u
many options.partitions --partition -p
many options.vcs --account --vc -A
many options.nodes --nodelist -w
many options.names --name -n
yes all_users --all -a
yes me --me
many states --state -t
value idle --idle
yes unfold --array -r
yes start --start
yes summary --summary
no summary --no-summary
yes output.as_json --json
yes output.as_lines --jsonl
value output.colour --color
value output.columns --format -o
value output.about_columns --columns
yes output.no_header --noheader -h
value daemon.daemon --daemon
yes daemon.insecure --insecure-loopback
value daemon.wait_for_daemon --daemon-wait
""",
    "show": """
function jobs.show show_command
words jobs required
group output JsonOptions
group daemon DaemonOptions
yes why_order --why-order
yes output.as_json --json
yes output.as_lines --jsonl
value output.colour --color
value daemon.daemon --daemon
yes daemon.insecure --insecure-loopback
value daemon.wait_for_daemon --daemon-wait
""",
    "cancel": """
function jobs.job_actions cancel_command
words jobs any
group options FilterOptions
group daemon DaemonOptions
many options.users --user -u
many options.partitions --partition -p
many options.vcs --account --vc -A
many options.nodes --nodelist -w
many options.names --name -n
yes me --me
many states --state -t
value signal --signal -s
yes yes --yes -y
yes quiet --quiet -Q
value reason --reason
value daemon.daemon --daemon
yes daemon.insecure --insecure-loopback
value daemon.wait_for_daemon --daemon-wait
""",
    "hold": """
function jobs.job_actions hold_command
words jobs required
group daemon DaemonOptions
value reason --reason
value daemon.daemon --daemon
yes daemon.insecure --insecure-loopback
value daemon.wait_for_daemon --daemon-wait
""",
    "release": """
function jobs.job_actions release_command
words jobs required
group daemon DaemonOptions
value daemon.daemon --daemon
yes daemon.insecure --insecure-loopback
value daemon.wait_for_daemon --daemon-wait
""",
    "requeue": """
function jobs.job_actions requeue_command
words jobs required
group daemon DaemonOptions
value reason --reason
yes fresh --fresh
value daemon.daemon --daemon
yes daemon.insecure --insecure-loopback
value daemon.wait_for_daemon --daemon-wait
""",
    "suspend": """
function jobs.job_actions suspend_command
words jobs required
group daemon DaemonOptions
value reason --reason
value daemon.daemon --daemon
yes daemon.insecure --insecure-loopback
value daemon.wait_for_daemon --daemon-wait
""",
    "resume": """
function jobs.job_actions resume_command
words jobs required
group daemon DaemonOptions
value daemon.daemon --daemon
yes daemon.insecure --insecure-loopback
value daemon.wait_for_daemon --daemon-wait
""",
}
