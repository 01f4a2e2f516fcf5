// Made from openapi.json by `make api`; a change here is lost.

export const BucketIn = {
  "kind": {"type":"string","enum":["s3","gcs","azure"],"default":"s3"},
  "bucket": {"type":"string","minLength":1,"maxLength":200},
  "access_key": {"type":"string","maxLength":300,"default":""},
  "secret_key": {"type":"string","minLength":1,"maxLength":8000},
  "endpoint": {"type":"string","maxLength":300,"default":""},
  "region": {"type":"string","maxLength":300,"default":"us-east-1"},
  "prefix": {"type":"string","maxLength":300,"default":""},
} as const;

export const BudgetIn = {
  "scope": {"type":"string","enum":["user","project","job"]},
  "project_id": {"type":"string"},
  "job_id": {"type":"string"},
  "limit": {"type":"number","minimum":0,"maximum":1000000},
  "period": {"type":"string","enum":["total","month"],"default":"total"},
} as const;

export const CamelProjectIn = {
  "name": {"type":"string","minLength":1,"maxLength":120},
  "description": {"type":"string","maxLength":2000},
  "modelArchitecture": {"type":"string","enum":["transformer","custom"]},
  "modelSize": {"type":"number","exclusiveMinimum":0,"maximum":10000},
  "trainingDataPath": {"type":"string","maxLength":1024},
} as const;

export const ChannelIn = {
  "kind": {"type":"string","enum":["email","webhook","slack"]},
  "name": {"type":"string","minLength":1,"maxLength":80},
  "address": {"type":"string","minLength":1,"maxLength":2000},
  "rules": {"type":"array","minItems":1,"maxItems":100,"default":["failed","diverged","stalled","alert"],"items":{"type":"string","maxLength":64}},
  "project_id": {"type":"string"},
} as const;

export const CredentialsIn = {
  "values": {"type":"object","maxProperties":20,"items":{"type":"string","maxLength":4000}},
} as const;

export const CreditIn = {
  "amount": {"type":"number","minimum":0,"maximum":1000000},
  "as_of": {"type":"string"},
} as const;

export const DatasetChange = {
  "format": {"type":"string","enum":["text","prompt_completion","alpaca","sharegpt","messages","oasst"]},
  "columns": {"type":"object","maxProperties":10,"items":{"type":"string","minLength":1,"maxLength":500}},
  "encoding": {"type":"string","enum":["utf-8","utf-16","utf-16-le","utf-16-be","windows-1252","latin-1"]},
  "name": {"type":"string","minLength":1,"maxLength":200},
} as const;

export const DatasetFromHub = {
  "name": {"type":"string","minLength":1,"maxLength":200},
  "repository": {"type":"string","pattern":"^[A-Za-z0-9][\\w.-]{0,95}(/[A-Za-z0-9][\\w.-]{0,95})?$"},
  "config": {"type":"string","minLength":1,"maxLength":120,"pattern":"^[\\w][\\w./=+-]*$"},
  "split": {"type":"string","minLength":1,"maxLength":120,"pattern":"^[\\w][\\w./=+-]*$"},
  "revision": {"type":"string","minLength":1,"maxLength":120,"pattern":"^[\\w][\\w./=+-]*$"},
} as const;

export const Extension = {
  "epochs": {"type":"integer","minimum":1,"maximum":100000},
  "max_steps": {"type":"integer","minimum":1,"maximum":1000000000},
} as const;

export const NewBranch = {
  "name": {"type":"string","minLength":1,"maxLength":120},
  "learning_rate": {"type":"number","exclusiveMinimum":0,"maximum":10},
  "weight_decay": {"type":"number","minimum":0,"maximum":1000},
  "epochs": {"type":"integer","minimum":1,"maximum":100000},
  "max_steps": {"type":"integer","minimum":1,"maximum":1000000000},
} as const;

export const FactorCode = {
  "code": {"type":"string","minLength":1,"maxLength":64},
} as const;

export const HubPush = {
  "repository": {"type":"string","maxLength":120,"pattern":"^[\\w.-]+/[\\w.-]+$"},
  "private": {"type":"boolean","default":true},
} as const;

export const InvitationIn = {
  "email": {"type":"string","minLength":3,"maxLength":254},
  "role": {"type":"string","enum":["admin","member"],"default":"member"},
} as const;

export const LiveSettings = {
  "learning_rate": {"type":"number","exclusiveMinimum":0,"maximum":10},
  "weight_decay": {"type":"number","minimum":0,"maximum":1000},
  "clip_norm": {"type":"number","minimum":0,"maximum":1000000},
  "eval_every_steps": {"type":"integer","minimum":1,"maximum":1000000000},
  "save_every_steps": {"type":"integer","minimum":1,"maximum":1000000000},
} as const;

export const NeedIn = {
  "memory_gb": {"type":"number","exclusiveMinimum":0,"maximum":100000},
  "hours": {"type":"number","exclusiveMinimum":0,"maximum":100000},
  "operations": {"type":"number","exclusiveMinimum":0,"maximum":1e+30},
  "reference_gpu": {"type":"string","minLength":1,"maxLength":100},
  "gpus": {"type":"integer","minimum":1,"maximum":1024,"default":1},
  "multi_node": {"type":"boolean","default":false},
  "interactive": {"type":"boolean","default":false},
  "bf16": {"type":"boolean","default":false},
  "resumes": {"type":"boolean","default":true},
  "disk_gb": {"type":"number","minimum":0,"maximum":1000000,"default":50},
  "data_gb": {"type":"number","minimum":0,"maximum":1000000,"default":1},
} as const;

export const NewApiToken = {
  "name": {"type":"string","minLength":1,"maxLength":120},
  "scopes": {"type":"array","minItems":1,"maxItems":3,"items":{"type":"string","enum":["read","write","admin"]}},
  "expires_in_days": {"type":"integer","minimum":1,"maximum":365,"default":90},
} as const;

export const NewEvaluation = {
  "max_new_tokens": {"type":"integer","minimum":1,"maximum":4096,"default":128},
  "max_batches": {"type":"integer","minimum":1,"maximum":1000000000,"default":20},
  "checkpoint_id": {"type":"string"},
  "data_path": {"type":"string","minLength":1,"maxLength":1000},
  "prompts": {"type":"array","maxItems":1000,"items":{"type":"string","minLength":1,"maxLength":20000}},
  "lm_eval_tasks": {"type":"array","maxItems":50,"items":{"type":"string","minLength":1,"maxLength":120,"pattern":"^[\\w.,:/-]+$"}},
} as const;

export const NewExport = {
  "form": {"type":"string","enum":["adapter","merged","gguf"],"default":"merged","choices":[{"label":"Merged","note":"the whole model, for transformers and vLLM","value":"merged"},{"label":"Adapter","note":"only the adapter weights, for PEFT","value":"adapter"},{"label":"GGUF","note":"one file, for llama.cpp and Ollama","value":"gguf"}]},
  "dtype": {"description":"Number format of the exported weights; fp32 loses nothing and takes twice the space.","type":"string","enum":["fp32","bf16","fp16"],"default":"bf16","choices":[{"label":"bf16","value":"bf16"},{"label":"fp16","value":"fp16"},{"label":"fp32","value":"fp32"}]},
  "checkpoint_id": {"description":"A checkpoint of the job. If empty: the finished model.","type":"string"},
  "average_with": {"description":"Other checkpoints of the job. The mean of checkpoint_id and these is exported.","type":"array","maxItems":99,"items":{"type":"string"}},
  "prompts": {"type":"array","maxItems":1000,"items":{"type":"string","minLength":1,"maxLength":20000}},
} as const;

export const NewHubToken = {
  "token": {"type":"string","minLength":8,"maxLength":500},
} as const;

export const SecretIn = {
  "value": {"type":"string","minLength":1,"maxLength":8000},
} as const;

export const NewJob = {
  "project_id": {"type":"string"},
  "dataset_id": {"type":"string"},
  "eval_dataset_id": {"type":"string"},
  "mix": {"type":"array","maxItems":20,"default":[],"items":{"type":"object"}},
  "model_id": {"type":"string"},
  "gpu_type": {"type":"string","minLength":1,"maxLength":64},
  "host_memory": {"type":"integer","exclusiveMinimum":0,"maximum":1000000},
  "kind": {"type":"string","enum":["train","find_learning_rate"],"default":"train"},
  "name": {"type":"string","minLength":1,"maxLength":120},
  "max_attempts": {"type":"integer","minimum":1,"maximum":1000,"default":5},
  "budget": {"type":"number","minimum":0,"maximum":1000000},
  "max_hours": {"type":"number","exclusiveMinimum":0,"maximum":100000},
  "failover": {"type":"array","maxItems":5,"items":{"type":"object"}},
  "secrets": {"type":"array","maxItems":100,"items":{"type":"string","maxLength":64}},
} as const;

export const NewDocuments = {
  "name": {"type":"string","minLength":1,"maxLength":200},
  "filename": {"type":"string","minLength":1,"maxLength":1024},
  "size": {"type":"integer","minimum":0,"maximum":9007199254740992},
  "passage_characters": {"type":"integer","minimum":200,"maximum":20000,"default":1500},
} as const;

export const NewModel = {
  "source": {"type":"string","enum":["hub","folder","upload"]},
  "name": {"type":"string","minLength":1,"maxLength":200},
  "repository": {"type":"string","pattern":"^[A-Za-z0-9][\\w.-]{0,95}/[A-Za-z0-9][\\w.-]{0,95}$"},
  "revision": {"type":"string","minLength":1,"maxLength":120,"pattern":"^[\\w][\\w./+-]*$"},
  "path": {"type":"string","minLength":1,"maxLength":1024},
  "files": {"type":"array","maxItems":1000,"items":{"type":"object"}},
} as const;

export const NewPasskey = {
  "name": {"type":"string","minLength":1,"maxLength":120},
} as const;

export const QuestionsIn = {
  "endpoint": {"type":"string","maxLength":500},
  "model": {"type":"string","minLength":1,"maxLength":200},
  "secret": {"type":"string","pattern":"^[A-Z][A-Z0-9_]{0,63}$"},
  "pairs": {"type":"integer","minimum":1,"maximum":10,"default":2},
  "most_passages": {"type":"integer","minimum":1,"maximum":100000,"default":200},
  "max_answer_tokens": {"type":"integer","minimum":64,"maximum":32768,"default":800},
  "most_tokens": {"type":"integer","minimum":1000,"maximum":10000000000,"default":500000},
} as const;

export const SamplingSettings = {
  "temperature": {"description":"Randomness of the answer; 0 always takes the most likely token.","type":"number","minimum":0,"maximum":2},
  "top_p": {"description":"Nucleus sampling: draws only from the most likely tokens whose probabilities add up to this value.","type":"number","exclusiveMinimum":0,"maximum":1},
  "seed": {"description":"Random seed; the same seed gives the same answer.","type":"integer","minimum":-9223372036854776000,"exclusiveMaximum":9223372036854776000},
  "max_tokens": {"description":"Maximum length of the answer, in tokens.","type":"integer","minimum":1},
} as const;

export const ScriptIn = {
  "script": {"type":"string","maxLength":1000000},
  "files": {"type":"object","maxProperties":50,"default":{},"items":{"type":"string","maxLength":1000000}},
  "arguments": {"type":"array","maxItems":100,"default":[],"items":{"type":"string","maxLength":1000}},
} as const;

export const SignUp = {
  "name": {"type":"string","minLength":1,"maxLength":120},
  "email": {"type":"string","minLength":3,"maxLength":254},
  "password": {"type":"string","minLength":10,"maxLength":128},
  "invitation": {"type":"string","minLength":1,"maxLength":256},
} as const;

export const ViewIn = {
  "name": {"type":"string","minLength":1,"maxLength":80},
  "query": {"type":"string","maxLength":2000,"default":""},
  "columns": {"type":"array","maxItems":40,"default":["learning_rate","eval/loss.min","train/loss","train/tokens_per_second.mean","time","cost"],"items":{"type":"string","minLength":1,"maxLength":200}},
  "group": {"type":"array","maxItems":4,"default":["seeds"],"items":{"type":"string","minLength":1,"maxLength":200}},
  "sort": {"type":"string","maxLength":400,"default":"-created"},
} as const;

export const NewMlJob = {
  "code": {"type":"string","maxLength":1000000},
  "files": {"type":"array","maxItems":2000,"default":[],"items":{"type":"object"}},
  "entry": {"type":"string","minLength":1,"maxLength":400},
  "arguments": {"type":"array","maxItems":500,"default":[],"items":{"type":"string","maxLength":4000}},
  "name": {"type":"string","minLength":1,"maxLength":120},
  "project_id": {"type":"string"},
  "provider": {"type":"string","minLength":1,"maxLength":100},
  "packages": {"type":"array","maxItems":200,"items":{"type":"string","minLength":1,"maxLength":100}},
  "environment": {"type":"object","maxProperties":100,"default":{},"items":{"type":"string"}},
  "datasets": {"type":"array","maxItems":20,"default":[],"items":{"type":"string","minLength":1,"maxLength":1000}},
  "budget": {"type":"number","minimum":0,"maximum":1000000},
  "max_hours": {"type":"number","exclusiveMinimum":0,"maximum":100000},
  "failover": {"type":"array","maxItems":5,"items":{"type":"object"}},
  "secrets": {"type":"array","maxItems":100,"items":{"type":"string","maxLength":64}},
  "network": {"type":"boolean","default":false},
  "confirmed": {"type":"boolean","default":false},
} as const;

export const Overrides = {
  "gpu_memory_gb": {"type":"number","minimum":0,"maximum":100000},
  "duration_hours": {"type":"number","exclusiveMinimum":0,"maximum":100000},
  "gpus": {"type":"integer","minimum":0,"maximum":1024},
  "interactive": {"type":"boolean"},
  "multi_node": {"type":"boolean"},
  "timeout_seconds": {"type":"number","exclusiveMinimum":0,"maximum":360000000},
  "framework": {"type":"string","minLength":1,"maxLength":100},
} as const;
