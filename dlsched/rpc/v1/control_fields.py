"""Generated from proto/dlsched/v1 by proto/message_fields.py: never edited by hand."""

# a field a line: its number, its name, its label if it has one, its type
MESSAGES = {
    "ActReply": """
1 done repeated string
2 failed repeated Failure
3 lines repeated string
4 next int64
""",
    "ActRequest": """
1 action enum Action
2 filter Filter
3 signal int32
4 reason string
5 only_count bool
6 fresh bool
7 environment repeated EnvironmentVariable
8 limit int32
9 after int64
10 signal_to string
11 step optional int32
""",
    "ArrayElements": """
1 array_job int64
2 tasks repeated int32
""",
    "AuditLine": """
1 id int64
2 at double
3 kind string
4 actor string
5 job optional int64
6 node string
7 text string
""",
    "AuditPage": """
1 lines repeated AuditLine
""",
    "AuditRequest": """
1 actors repeated string
2 kinds repeated string
3 nodes repeated string
4 jobs repeated int64
5 since optional double
6 until optional double
7 limit int32
8 parts_too bool
""",
    "Batch": """
1 local int64
2 accumulation int64
""",
    "CalibrationReply": """
1 by_basis repeated CalibrationView
2 by_policy repeated CalibrationView
3 by_class repeated CalibrationView
""",
    "CalibrationRequest": """
1 since optional double
""",
    "CalibrationView": """
1 basis string
2 jobs int32
3 mean_error_s double
4 median_abs_error_s double
5 p90_abs_error_s double
6 mean_lead_s double
7 start_within optional double
8 start_relative optional double
9 ended int32
10 end_within optional double
11 end_relative optional double
""",
    "CheckpointView": """
1 job int64
2 array_job optional int64
3 array_task optional int32
4 user string
5 run int64
6 step int64
7 bytes int64
8 at double
9 loss optional double
10 path string
11 source int64
12 next bool
13 used_by repeated int64
""",
    "CheckpointsReply": """
1 checkpoints repeated CheckpointView
2 unsaved repeated UnsavedView
""",
    "CheckpointsRequest": """
1 filter Filter
""",
    "ConfirmOverRequest": """
1 jobs repeated string
""",
    "CreateTokenReply": """
1 token string
2 view TokenView
""",
    "CreateTokenRequest": """
1 user string
2 lifetime_s double
3 comment string
""",
    "DeadlineOutlook": """
1 job int64
2 deadline_at double
3 on_time double
4 verdict string
5 earliest_at optional double
6 end PredictedMoment
""",
    "Declined": """
1 place int32
2 deadline DeadlineOutlook
3 why string
""",
    "Dependency": """
1 kind string
2 job int64
3 delay_s double
4 or_next bool
5 task optional int32
6 in_call int32
""",
    "EnvironmentVariable": """
1 name string
2 value string
""",
    "EventView": """
1 at double
2 kind string
3 actor string
4 text string
5 run int64
6 node string
""",
    "ExpectedGoodput": """
1 gpus int32
2 nodes int32
3 goodput double
4 throughput double
5 batch Batch
""",
    "Failure": """
1 subject string
2 why string
""",
    "Filter": """
1 jobs repeated int64
2 users repeated string
3 partitions repeated string
4 vcs repeated string
5 states repeated string
6 nodes repeated string
7 names repeated string
8 elements repeated ArrayElements
9 all_users bool
""",
    "FoldedView": """
1 first JobView
2 tasks string
3 count int32
""",
    "GpuView": """
1 index int32
2 uuid string
3 type string
4 state string
5 why string
6 jobs repeated int64
7 utilization optional double
8 memory_used_bytes optional int64
9 memory_bytes optional int64
10 temperature_c optional double
""",
    "GpusOnNode": """
1 node string
2 gpus repeated int32
""",
    "Halving": """
1 metric string
2 mode string
3 eta int32
4 rung int64
5 most optional int64
""",
    "HistoryPage": """
1 jobs repeated JobView
""",
    "HistoryRequest": """
1 filter Filter
2 since optional double
3 until optional double
4 limit int32
5 live_too bool
""",
    "JobColumn": """
1 field int32
2 places repeated fixed32
3 text string
4 ends repeated fixed32
5 reals repeated double
6 numbers repeated sfixed64
7 views repeated JobView
""",
    "JobColumns": """
1 count int32
2 columns repeated JobColumn
""",
    "JobDetail": """
1 job JobView
2 request JobRequest
3 runs repeated RunView
4 events repeated EventView
5 why_pending repeated string
6 order_numbers map string string
7 working_directory string
8 output string
9 error string
10 last_checkpoint_step int64
11 last_checkpoint string
12 training TrainingView
13 beside repeated int64
20 cause string
21 host_share string
22 awaited_by repeated int64
23 unsaved UnsavedView
""",
    "JobOrder": """
1 policy string
2 jobs repeated int64
3 terms repeated OrderTerm
""",
    "JobRequest": """
1 name string
2 argv repeated string
3 script bytes
4 working_directory string
5 output string
6 error string
7 truncate bool
8 environment repeated EnvironmentVariable
9 partition string
10 vc string
11 priority_class string
12 priority optional double
13 gpus optional int32
14 nodes optional int32
15 gpus_per_node optional int32
16 gpu_types repeated string
17 min_gpus optional int32
18 max_gpus optional int32
19 share optional double
20 cpus optional int32
21 memory_bytes optional int64
22 only_nodes repeated string
23 not_nodes repeated string
24 exclusive bool
25 time_limit_s optional double
26 begin_at optional double
27 deadline_at optional double
28 mode enum LaunchMode
29 fence enum Fence
30 suspend_level enum SuspendLevel
31 grace_s optional double
32 warn_signal int32
33 warn_before_s double
34 retries int32
35 no_requeue bool
36 held bool
37 dependencies repeated Dependency
38 broken_dependency enum Broken
39 array string
40 model string
41 batch_size optional double
42 total_iterations optional double
43 weight optional double
44 expected_s optional double
45 comment string
46 notify string
47 no_slurm_environment bool
48 extra map string string
49 adaptive bool
50 fixed_batch bool
51 submit_host string
52 open_ended bool
53 deadline_value optional double
54 warn_script_only bool
55 requeue_on_timeout bool
56 keep_checkpoints optional int32
57 resume_from string
60 on_hang enum OnHang
61 hang_factor optional double
62 retry_elsewhere bool
70 label enum Label
80 sweep SweepTable
81 umask optional int32
82 ntasks optional int32
83 ntasks_per_node optional int32
84 cpus_per_task optional int32
90 notify_url string
91 mail_user string
92 container string
93 container_mounts string
95 deadline_kind enum DeadlineKind
96 sla string
97 constraint string
98 cell string
99 reservation string
100 time_min_s optional double
101 tmp_bytes optional int64
102 gpu_retries optional int32
103 max_nodes optional int32
130 terminal string
140 guarantee enum Guarantee
150 tasks repeated string
160 target_accuracy optional double
161 stop_when enum StopWhen
162 stop_under_load enum StopUnderLoad
170 in_place bool
180 gpus_by_type string
190 script_path string
191 warn_at_preemption bool
""",
    "JobView": """
1 job int64
2 array_job optional int64
3 array_task optional int32
4 name string
5 user string
6 vc string
7 partition string
8 state string
9 reason string
10 gpus int32
11 gang repeated int32
12 gpu_types repeated string
13 nodes repeated string
14 submitted_at double
15 first_started_at optional double
16 started_at optional double
17 ended_at optional double
18 run_s optional double
19 gpu_s optional double
20 starts int32
21 preemptions int32
22 migrations int32
23 resizes int32
24 failures int32
25 code optional int32
26 signal optional int32
27 time_limit_s optional double
28 priority optional double
29 held bool
30 position optional int32
31 predicted_start_at optional double
32 predicted_basis string
33 array_limit int32
34 lost_s double
35 begin_at optional double
36 deadline_at optional double
37 run int64
38 priority_class string
39 dependencies repeated Dependency
40 cancelled_by string
41 progress optional double
42 comment string
43 model string
44 where repeated GpusOnNode
45 account string
46 predicted_end_at optional double
47 restart_s optional double
48 starting_s double
49 gpu_share optional double
50 asked JobRequest
60 training TrainingNow
61 predicted_start_p10_at optional double
62 predicted_start_p90_at optional double
63 predicted_end_p10_at optional double
64 predicted_end_p90_at optional double
65 gpu_used optional double
66 steps repeated StepRecord
67 cpu_s optional double
68 peak_memory_bytes optional int64
69 working_directory string
70 interactive bool
71 script_cpu_s optional double
72 script_peak_bytes optional int64
73 gpus_by_type string
""",
    "ListTokensReply": """
1 tokens repeated TokenView
""",
    "ListTokensRequest": """
1 user string
2 all_users bool
""",
    "LogChunk": """
1 data bytes
""",
    "LogsRequest": """
1 job int64
2 run optional int64
3 rank optional int32
4 error bool
5 tail_lines int64
6 follow bool
7 node string
""",
    "MetricCurve": """
1 name string
2 at repeated double
3 step repeated int64
4 value repeated double
""",
    "MetricsReply": """
1 curves repeated MetricCurve
2 left_out int32
""",
    "MetricsRequest": """
1 job int64
""",
    "NodeView": """
1 name string
2 state string
3 why string
4 why_actor optional string
5 why_at optional double
6 gpu_type string
7 gpus int32
8 busy_gpus int32
9 cpus optional int32
10 memory_bytes optional int64
11 partitions repeated string
12 jobs repeated int64
13 heard_ago_s optional double
14 address string
15 agent_version string
16 launcher string
17 capabilities repeated string
18 devices repeated GpuView
19 job_names repeated string
20 cpus_held double
21 memory_held_bytes int64
22 features repeated string
""",
    "NodesReply": """
1 nodes repeated NodeView
""",
    "NodesRequest": """
1 names repeated string
""",
    "OrderTerm": """
1 name string
2 values repeated double
""",
    "OrphanView": """
1 node string
2 job int64
3 run int64
4 run_id string
5 state string
6 gpus repeated string
7 nodes repeated string
""",
    "OrphansReply": """
1 orphans repeated OrphanView
2 failed repeated Failure
""",
    "OrphansRequest": """
1 end repeated string
""",
    "PredictedMoment": """
1 at optional double
2 p10 optional double
3 p90 optional double
""",
    "QueuePage": """
1 jobs repeated JobView
2 folded repeated FoldedView
3 summary QueueSummary
4 columns JobColumns
""",
    "QueueRequest": """
1 filter Filter
2 predict bool
3 unfold bool
4 brief bool
5 columns bool
""",
    "QueueSummary": """
1 running int32
2 running_gpus int32
3 pending int32
4 pending_gpus int32
5 gpus int32
6 busy_gpus int32
7 policy string
8 round int64
9 round_s double
10 others int32
11 policy_failure string
""",
    "ReloadReply": """
1 changes repeated string
""",
    "ReloadRequest": """
""",
    "RemoveTenantRequest": """
1 kind string
2 name string
""",
    "RevokeTokenReply": """
1 view TokenView
""",
    "RevokeTokenRequest": """
1 token_id string
""",
    "RunView": """
1 run int64
2 layout repeated Share
3 started_at double
4 ended_at optional double
5 end string
6 code int32
7 signal int32
8 executed_s optional double
9 last_step int64
10 gpu_memory_bytes repeated int64
""",
    "RungView": """
1 rung int64
2 step int64
3 value optional double
4 stopped bool
""",
    "SetNodesRequest": """
1 action enum NodeAction
2 names repeated string
3 reason string
4 now bool
5 by_at optional double
""",
    "SetPolicyReply": """
1 parts map string string
2 options repeated string
""",
    "SetPolicyRequest": """
1 parts map string string
2 options repeated string
""",
    "SetShadowRequest": """
1 off bool
2 parts map string string
3 options repeated string
""",
    "SetSpeedsRequest": """
1 speeds repeated SpeedView
""",
    "SetTenantRequest": """
1 tenant Tenant
2 create bool
3 fields repeated string
4 ignore_jobs bool
""",
    "ShadowDifference": """
1 job int64
2 name string
3 user string
4 gpus int32
5 would string
6 nodes repeated string
""",
    "ShadowReply": """
1 on bool
2 policy string
3 parts map string string
4 options repeated string
5 present string
6 set_by string
7 since double
8 looks int64
9 differing int64
10 failures int64
11 failure string
12 at optional double
13 cost_s double
14 every_s double
15 differences repeated ShadowDifference
16 more_differences int32
17 under_present WhatIfOutcome
18 under_shadow WhatIfOutcome
""",
    "ShadowRequest": """
""",
    "Share": """
1 node string
2 gpus repeated string
""",
    "ShareView": """
1 kind string
2 name string
3 group string
4 depth int32
5 weight double
6 share double
7 used_gpu_s double
8 usage double
9 effective double
10 factor double
""",
    "ShowReply": """
1 jobs repeated JobDetail
2 total int64
3 order JobOrder
""",
    "ShowRequest": """
1 filter Filter
2 why_order bool
3 skip int64
4 order_only bool
""",
    "SnapshotChunk": """
1 data bytes
""",
    "SnapshotRequest": """
""",
    "SpeedView": """
1 model string
2 batch_size int64
3 gpu_type string
4 gpus int32
5 partner string
6 partner_batch_size int64
7 steps_per_s double
8 measurements int64
9 source string
10 at double
""",
    "SpeedsChanged": """
1 count int32
""",
    "SpeedsReply": """
1 speeds repeated SpeedView
""",
    "SpeedsRequest": """
1 model string
2 batch_size optional int64
3 gpu_type string
""",
    "StatusReply": """
1 health string
2 problems repeated string
3 leader string
4 epoch int64
5 database string
6 policy string
7 parts map string string
8 round int64
9 round_s double
10 policy_failures int32
11 nodes_up int32
12 nodes_late int32
13 nodes_down int32
14 pending int32
15 running int32
16 up_s double
17 version string
18 cluster string
19 standby bool
20 standbys repeated string
21 nodes_unheard int32
23 past repeated string
""",
    "StatusRequest": """
""",
    "StepRecord": """
1 number int32
2 name string
3 nodes string
4 tasks int32
5 cpus int32
6 began_at double
7 ran_s double
8 code int32
9 signal int32
10 cpu_s double
11 peak_memory_bytes int64
12 running bool
""",
    "SubmitReply": """
1 jobs repeated Submitted
2 warnings repeated string
3 supposed repeated Supposed
4 deadlines repeated DeadlineOutlook
5 declined repeated Declined
""",
    "SubmitRequest": """
1 request_id string
2 jobs repeated JobRequest
3 test_only bool
4 environment repeated EnvironmentVariable
5 require_sla bool
""",
    "Submitted": """
1 job int64
2 elements int32
""",
    "Supposed": """
1 start_at optional double
2 basis string
3 start PredictedMoment
4 end PredictedMoment
5 deadline DeadlineOutlook
""",
    "SweepElement": """
1 job int64
2 task int32
3 values repeated string
4 state string
5 reason string
6 step optional int64
7 metrics map string double
8 not_finite repeated string
9 rungs repeated RungView
""",
    "SweepReply": """
1 table SweepTable
2 elements repeated SweepElement
3 name string
4 job int64
""",
    "SweepRequest": """
1 job int64
""",
    "SweepRow": """
1 values repeated string
""",
    "SweepTable": """
1 columns repeated string
2 rows repeated SweepRow
3 halving Halving
""",
    "TaskView": """
1 number int32
2 state string
3 code int32
4 signal int32
5 node string
6 ran_s double
7 line string
""",
    "TasksReply": """
1 job int64
2 name string
3 total int32
4 running int32
5 done int32
6 failed int32
7 mean_s optional double
8 tasks repeated TaskView
9 more bool
""",
    "TasksRequest": """
1 job int64
2 after int32
3 only_failed bool
""",
    "Tenant": """
1 user TenantUser
2 account TenantAccount
3 vc TenantVc
4 partition TenantPartition
5 quota TenantQuota
6 source string
7 set_by string
8 set_at optional double
9 gpus_now int32
10 jobs_now int32
11 gpu_hours_now optional double
12 class TenantClass
13 reservation TenantReservation
14 gpu_parts_now double
""",
    "TenantAccount": """
1 name string
2 parent string
3 weight optional double
4 vc string
5 users repeated string
""",
    "TenantClass": """
1 name string
2 priority optional double
3 preempts repeated string
4 grace_s optional double
5 max_time_s optional double
6 gpus optional int32
7 gpus_per_user optional int32
8 jobs optional int32
9 jobs_per_user optional int32
10 users repeated string
11 accounts repeated string
12 is_default optional bool
""",
    "TenantPartition": """
1 name string
2 nodes string
3 max_time_s optional double
4 is_default bool
5 default_time_s optional double
6 users repeated string
7 accounts repeated string
8 groups repeated string
9 cpus_per_gpu optional int32
10 memory_gb_per_gpu optional double
""",
    "TenantQuota": """
1 kind string
2 name string
3 gpus optional int32
4 jobs optional int32
5 gpu_hours optional double
6 window_s optional double
""",
    "TenantReply": """
1 lines repeated string
""",
    "TenantReservation": """
1 name string
2 nodes string
3 start_at optional double
4 end_at optional double
5 users repeated string
6 accounts repeated string
7 maintenance optional bool
8 reason string
""",
    "TenantUser": """
1 name string
2 account string
3 vc string
4 accounts repeated string
""",
    "TenantVc": """
1 name string
2 gpus optional int32
3 nodes string
4 guaranteed optional int32
5 borrow optional bool
6 parent string
""",
    "TenantsReply": """
1 tenants repeated Tenant
""",
    "TenantsRequest": """
1 kind string
""",
    "TokenView": """
1 token_id string
2 user string
3 created_at double
4 expires_at double
5 revoked_at optional double
6 comment string
""",
    "TrainingNow": """
1 loss optional double
2 steps_s optional double
3 samples_s optional double
4 gpu_memory_bytes optional int64
5 gpu_utilization optional double
6 report_age_s optional double
7 metrics map string double
8 not_finite repeated string
9 gpu_idle_s optional double
""",
    "TrainingView": """
1 gpu_type string
2 model repeated double
3 observations int32
4 gradient_sqr optional double
5 gradient_var optional double
6 initial int64
7 maximum int64
8 local_min int64
9 local_max int64
10 may_accumulate bool
11 fixed bool
12 batch Batch
13 nodes int32
14 replicas int32
15 progress double
16 sizes repeated ExpectedGoodput
17 restart_s optional double
18 save_s optional double
19 ignored int64
""",
    "UnsavedView": """
1 job int64
2 array_job optional int64
3 array_task optional int32
4 step int64
5 at double
6 why string
7 in_a_row int32
8 newest_step optional int64
9 newest_at optional double
""",
    "UpdateRequest": """
1 filter Filter
2 fields map string string
3 set_dependencies bool
4 dependencies repeated Dependency
""",
    "UsageReply": """
1 usage repeated UsageView
2 shares repeated ShareView
3 half_life_s double
4 level string
""",
    "UsageRequest": """
1 by_user bool
2 since optional double
3 shares bool
4 by string
""",
    "UsageView": """
1 name string
2 gpu_s double
3 gpus_now int32
4 entitlement optional double
5 pending int32
6 gpu_parts_now double
""",
    "WaitReply": """
1 job JobView
""",
    "WaitRequest": """
1 filter Filter
""",
    "WhatIfBlocks": """
1 job repeated int64
2 node repeated int32
3 gpus repeated int32
4 start repeated double
5 end repeated double
""",
    "WhatIfJob": """
1 job int64
2 name string
3 user string
4 gpus int32
5 waits bool
6 start PredictedMoment
7 end PredictedMoment
8 submitted_at double
""",
    "WhatIfNode": """
1 name string
2 gpus int32
3 gpu_type string
""",
    "WhatIfOutcome": """
1 gpus optional int32
2 gpu_types repeated string
3 policy string
4 why string
5 basis string
6 start PredictedMoment
7 end PredictedMoment
8 on_time optional double
9 verdict string
10 gpu_s optional double
11 others_later_s optional double
12 jobs int32
13 never int32
14 mean_jct_s optional double
15 p95_jct_s optional double
16 all_done_s optional double
17 was_cut bool
18 all repeated WhatIfJob
19 blocks WhatIfBlocks
20 must_move repeated int64
21 reward optional double
22 others_reward optional double
23 latest_submit_at optional double
""",
    "WhatIfReply": """
1 at double
2 policy string
3 job int64
4 state string
5 deadline_at optional double
6 outcomes repeated WhatIfOutcome
7 nodes repeated WhatIfNode
8 sla string
9 submitted_at double
""",
    "WhatIfRequest": """
1 filter Filter
2 described JobRequest
3 gpus repeated int32
4 gpu_types repeated string
5 policies repeated string
6 options repeated string
7 schedule bool
""",
}
ANSWERS = {
    "Submit": "SubmitReply",
    "Queue": "QueuePage",
    "Show": "ShowReply",
    "History": "HistoryPage",
    "Act": "ActReply",
    "Update": "ActReply",
    "Metrics": "MetricsReply",
    "Sweep": "SweepReply",
    "Tasks": "TasksReply",
    "Wait": "WaitReply",
    "Logs": "LogChunk",
    "Nodes": "NodesReply",
    "SetNodes": "ActReply",
    "Status": "StatusReply",
    "Usage": "UsageReply",
    "Checkpoints": "CheckpointsReply",
    "SetPolicy": "SetPolicyReply",
    "Reload": "ReloadReply",
    "Snapshot": "SnapshotChunk",
    "WhatIf": "WhatIfReply",
    "SetShadow": "ShadowReply",
    "Shadow": "ShadowReply",
    "Calibration": "CalibrationReply",
    "Orphans": "OrphansReply",
    "ConfirmOver": "ActReply",
    "Audit": "AuditPage",
    "Tenants": "TenantsReply",
    "SetTenant": "TenantReply",
    "RemoveTenant": "TenantReply",
    "Speeds": "SpeedsReply",
    "SetSpeeds": "SpeedsChanged",
    "ForgetSpeeds": "SpeedsChanged",
    "CreateToken": "CreateTokenReply",
    "ListTokens": "ListTokensReply",
    "RevokeToken": "RevokeTokenReply",
}
NUMBERS = {
    "Action": {
        "ACTION_UNSPECIFIED": 0,
        "ACTION_CANCEL": 1,
        "ACTION_HOLD": 2,
        "ACTION_RELEASE": 3,
        "ACTION_REQUEUE": 4,
        "ACTION_SUSPEND": 5,
        "ACTION_RESUME": 6,
        "ACTION_SIGNAL": 7,
    },
    "Broken": {
        "BROKEN_UNSPECIFIED": 0,
        "BROKEN_CANCEL": 1,
        "BROKEN_KEEP": 2,
    },
    "DeadlineKind": {
        "DEADLINE_KIND_UNSPECIFIED": 0,
        "DEADLINE_KIND_STRICT": 1,
        "DEADLINE_KIND_SOFT": 2,
        "DEADLINE_KIND_BEST_EFFORT": 3,
    },
    "Fence": {
        "FENCE_UNSPECIFIED": 0,
        "FENCE_HOLD": 1,
        "FENCE_LEASE": 2,
    },
    "Guarantee": {
        "GUARANTEE_UNSPECIFIED": 0,
        "GUARANTEE_GUARANTEED": 1,
        "GUARANTEE_OPPORTUNISTIC": 2,
        "GUARANTEE_AUTO": 3,
    },
    "Label": {
        "LABEL_UNSPECIFIED": 0,
        "LABEL_YES": 1,
        "LABEL_NO": 2,
    },
    "LaunchMode": {
        "LAUNCH_MODE_UNSPECIFIED": 0,
        "LAUNCH_MODE_BATCH": 1,
        "LAUNCH_MODE_NODE": 2,
        "LAUNCH_MODE_GPU": 3,
    },
    "NodeAction": {
        "NODE_ACTION_UNSPECIFIED": 0,
        "NODE_ACTION_DRAIN": 1,
        "NODE_ACTION_RESUME": 2,
        "NODE_ACTION_DOWN_CONFIRMED": 3,
    },
    "OnHang": {
        "ON_HANG_UNSPECIFIED": 0,
        "ON_HANG_REQUEUE": 1,
        "ON_HANG_FAIL": 2,
        "ON_HANG_TELL": 3,
        "ON_HANG_OFF": 4,
    },
    "StopUnderLoad": {
        "STOP_UNDER_LOAD_UNSPECIFIED": 0,
        "STOP_UNDER_LOAD_TARGET": 1,
        "STOP_UNDER_LOAD_BEST": 2,
        "STOP_UNDER_LOAD_EITHER": 3,
    },
    "StopWhen": {
        "STOP_WHEN_UNSPECIFIED": 0,
        "STOP_WHEN_END": 1,
        "STOP_WHEN_TARGET": 2,
        "STOP_WHEN_BEST": 3,
    },
    "SuspendLevel": {
        "SUSPEND_LEVEL_UNSPECIFIED": 0,
        "SUSPEND_LEVEL_FREEZE": 1,
        "SUSPEND_LEVEL_CUDA": 2,
        "SUSPEND_LEVEL_COOPERATIVE": 3,
    },
}
