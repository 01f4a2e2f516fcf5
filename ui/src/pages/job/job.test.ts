import { describe, expect, it } from "vitest";
import type { JobStatus } from "@/api/types";
import { testJob } from "@/test-job";
import { findingsOf } from "./findings";
import { epochName } from "./job-stats";
import { actionsFor, primaryOf } from "./action-buttons";
import { cancelText, startText } from "./resume-words";
import { countWrong, groupLines } from "@/text/log-groups";

const job = testJob;

describe("the output of a run", () => {
  it("marks the warnings of the trainer, which are no errors", () => {
    const pieces = groupLines(["warning: 100 of 120 rows failed the template", "error: the disk is full", "step 1/20"]);
    expect(pieces).toEqual([
      { kind: "line", text: "warning: 100 of 120 rows failed the template", wrong: false, warning: true },
      { kind: "line", text: "error: the disk is full", wrong: true },
      { kind: "line", text: "step 1/20", wrong: false },
    ]);
    expect(countWrong(pieces)).toBe(1);
  });
});

describe("the epoch of a run", () => {
  it.each([
    [null, 3, "Training"],
    [1.25, 3, "Epoch 1.25 of 3"],
    [2, null, "Epoch 2"],
    [210.88, 10_000, "Epoch 210 of 10,000"],
  ])("%s of %s", (epoch, epochs, words) => {
    expect(epochName({ epoch, epochs })).toBe(words);
  });
});

describe("the actions of a job", () => {
  const possible: Record<string, JobStatus[]> = {
    pause: ["queued", "provisioning", "running"],
    resume: ["paused", "failed", "cancelled"],
    cancel: ["queued", "paused", "provisioning", "running", "pausing"],
    extend: ["completed"],
    save: ["running"],
    delete: ["completed", "failed", "cancelled", "paused"],
    move: ["queued", "paused", "failed", "cancelled"],
  };
  const all: JobStatus[] = ["queued", "provisioning", "running", "pausing", "paused", "cancelling", "cancelled", "completed", "failed"];

  it.each(Object.entries(possible))("%s is offered exactly where the server allows it", (action, states) => {
    const offered = all.filter((status) => (actionsFor({ status, has_model: true, kind: "train", task: null }) as string[]).includes(action));
    expect(offered.toSorted()).toEqual(states.toSorted());
  });

  it.each(["download", "playground"] as const)("%s is offered only when there is a model", (action) => {
    expect(actionsFor({ status: "completed", has_model: true, kind: "train", task: null })).toContain(action);
    expect(actionsFor({ status: "completed", has_model: false, kind: "train", task: null })).not.toContain(action);
  });

  it("offers to fine-tune further only what is a whole model", () => {
    const completed = { status: "completed", has_model: true, kind: "train", task: null } as const;
    expect(actionsFor(job({ ...completed, config: { method: "full" } }))).toContain("base");
    expect(actionsFor(job({ ...completed, config: { method: "lora" } }))).not.toContain("base");
  });

  const allActions = (task: object) => [...new Set(all.flatMap((status) => actionsFor(job({ status, has_model: true, kind: "script", task: { kind: "script", ...task } }))))].toSorted();

  it("a script gets no command that it cannot receive", () => {
    expect(allActions({ resumes: true })).toEqual(["again", "cancel", "delete", "download", "move", "pause", "resume", "share"]);
    expect(allActions({ resumes: false })).not.toContain("pause");
  });

  it.each([
    ["queued", "cancel"],
    ["running", "pause"],
    ["pausing", null],
    ["paused", "resume"],
    ["cancelled", "resume"],
    ["completed", "playground"],
    ["failed", "resume"],
  ] as const)("%s: the primary one is %s", (status, action) => {
    expect(primaryOf(job({ status, has_model: true }))).toBe(action);
  });

  it("a job that failed on its data is duplicated and edited: resuming it fails again", () => {
    expect(primaryOf(job({ status: "failed", failed_on_data: true }))).toBe("again");
    expect(primaryOf(job({ status: "failed", failed_on_data: false }))).toBe("resume");
    expect(primaryOf(job({ status: "failed", kind: "script", error_code: "script_failed" }))).toBe("again");
  });

  it("sharing is always possible", () => {
    expect(all.every((status) => actionsFor({ status, has_model: false, kind: "train", task: null }).includes("share"))).toBe(true);
  });
});

const keys = (result: ReturnType<typeof findingsOf>) => result.map((finding) => finding.key);

describe("findings", () => {
  it("say nothing about a run that goes well", () => {
    expect(findingsOf(job({ summary: { restart_count: 0, dropped: {}, marks: [] } }), true)).toEqual([]);
  });

  it("put a failure first, with its reason and what to do", () => {
    const result = findingsOf(
      job({ status: "failed", start_time: "2026-11-01T00:00:00Z", error_code: "too_many_attempts", error_message: "Killed by signal 9.", summary: { restart_count: 2, resumed_from_step: 8000 } }),
      true,
    );
    expect(keys(result)).toEqual(["failed", "resumed"]);
    expect(result[0]?.text).toBe("Killed by signal 9.");
    expect(result[0]?.next).toContain("Resume");
    expect(result[1]).toMatchObject({ title: "Resumed twice.", tone: "plain" });
    expect(result[1]?.text).toContain("8,000");
  });

  it("give one piece of advice for a failure: that of the run, once", () => {
    const failed = { status: "failed", start_time: "2026-11-01T00:00:00Z", summary: { error: { cause: "host_out_of_memory", advice: "Use more RAM." } } } as const;
    const [run] = findingsOf(job({ ...failed, kind: "train", error_code: "training_failed", error_message: "MemoryError: 48 GB. Use more RAM." }), true);
    expect(run).toMatchObject({ title: "Training failed.", text: "MemoryError: 48 GB.", next: "Use more RAM." });
    const [script] = findingsOf(job({ ...failed, kind: "script", error_code: "script_failed", error_message: "exit code 1", summary: {} }), true);
    expect(script).toMatchObject({ title: "The script failed.", text: "exit code 1" });
    expect(script?.next).toContain("Duplicate and edit");
  });

  it("show the alerts of the run, and the rule that stopped it", () => {
    const alerts = [
      { rule: "alert", level: "info", title: "Half way", text: "50 %", attempt: 1, step: 1200, at: 0 },
      { rule: "diverged", level: "error", title: "The loss is not a number", text: "loss is NaN at step 4.", attempt: 1, step: 4, at: 0 },
    ];
    const result = findingsOf(job({ status: "cancelled", error_code: "stopped_by_rule", error_message: "Stopped early by the rule diverged.", summary: { alerts } }), true);
    expect(result.map(({ tone, title, text }) => [tone, title, text])).toEqual([
      ["attention", "Stopped early.", "Stopped early by the rule diverged."],
      ["plain", "Half way.", "50 % Step 1,200."],
      ["bad", "The loss is not a number.", "loss is NaN at step 4."],
    ]);
  });

  it("show what was found wrong with the run, with its own sentences", () => {
    const findings = [
      { kind: "degraded", severity: "critical", sentence: "Rank 3 on node1 is dead.", evidence: { rank: 3 }, since: 1, title: "Training process problem", next_step: "" },
      { kind: "throttled", severity: "warning", sentence: "GPU 1 is throttled by heat.", evidence: {}, since: null, title: "GPU throttled", next_step: "Cool the machine." },
    ];
    const result = findingsOf(job({ summary: { findings } }), true);
    expect(result.map(({ tone, title, text }) => [tone, title, text])).toEqual([
      ["bad", "Training process problem.", "Rank 3 on node1 is dead."],
      ["attention", "GPU throttled.", "GPU 1 is throttled by heat. Cool the machine."],
    ]);
  });

  it("tell a job that waits for its turn from one that waits for a worker", () => {
    expect(findingsOf(job({ status: "queued", queue_position: 3 }), true)[0]?.text).toBe("2 jobs are ahead of this job.");
    expect(keys(findingsOf(job({ status: "queued", queue_position: 1 }), false))).toEqual(["no-worker"]);
    expect(findingsOf(job({ status: "queued", queue_position: 3, target: "lambda" }), true)[0]?.text).toContain("rented");
  });

  it("name what was lost and what was refused", () => {
    const summary = {
      dropped: { metric: 812, log: 0 },
      damaged_lines: 1,
      marks: [{ kind: "applied", step: 3, refused: { learning_rate: "must be above 0" } }],
    };
    const result = findingsOf(job({ summary }), true);
    expect(keys(result)).toEqual(["refused", "dropped", "damaged"]);
    expect(result[1]?.text).toContain("812 metric events");
  });
});

describe("output", () => {
  it("collapses a traceback behind the line that names the exception", () => {
    const pieces = groupLines(["step 1", "Traceback (most recent call last):", '  File "train.py", line 3, in <module>', "    main()", "ValueError: no data", "bye"]);
    expect(pieces).toEqual([
      { kind: "line", text: "step 1", wrong: false },
      { kind: "traceback", title: "ValueError: no data", lines: expect.any(Array) },
      { kind: "line", text: "bye", wrong: false },
    ]);
    expect(countWrong(pieces)).toBe(1);
  });

  it("keeps a traceback that is still being printed", () => {
    expect(groupLines(["Traceback (most recent call last):", "  File …"])).toEqual([
      { kind: "traceback", title: "Traceback", lines: ["Traceback (most recent call last):", "  File …"] },
    ]);
  });

  it("marks lines that name an error, and not those that only contain its characters", () => {
    expect(groupLines(["CUDA error: out of memory", "terrors of the deep"]).map((piece) => piece.kind === "line" && piece.wrong)).toEqual([true, false]);
  });
});

const script = (resumes: boolean) => testJob({ kind: "script", attempt: 1, task: { kind: "script", resumes } });

describe("where a job continues", () => {
  it.each([
    ["its newest checkpoint", testJob({ attempt: 2 }), [20, 40], "It resumes from its last checkpoint, step 40."],
    ["the start, when it has never run", testJob({ attempt: 0 }), [], "It starts from the beginning: it has not run yet."],
    ["the start, when it has saved nothing", testJob({ attempt: 1 }), [], "It starts from the beginning: it has no checkpoint."],
    ["the checkpoint that it was branched from", testJob({ attempt: 0, branch: { job_id: "k", step: 8 } }), [], "It starts from the checkpoint of step 8 that it was branched from."],
    ["the start, for a script that cannot resume", script(false), [20], "It starts from the beginning, because the script cannot resume."],
    ["its newest checkpoint, for a script that can", script(true), [20], "It resumes from its last checkpoint, step 20."],
  ])("is %s", (_name, one, steps, sentence) => expect(startText(one, steps)).toBe(sentence));

  it("is not promised to be a checkpoint when a waiting job is cancelled", () => {
    expect(cancelText(testJob({ attempt: 0 }), [])).toBe("The job leaves the queue. You can resume it later. It starts from the beginning: it has not run yet.");
    expect(cancelText(testJob({ attempt: 1 }), [20])).toContain("Its checkpoints are kept.");
  });
});
