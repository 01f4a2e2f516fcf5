"""Named limits: sizes beyond these are mistakes, not models, and are refused by name."""

MAX_LAYERS = 1_024
# Of a config.json from anybody: every layer becomes an object.
MAX_CONFIG_LAYERS = 10_000
# Of any size in it: widths, heads, experts, rows of a vocabulary, positions.
MAX_CONFIG_SIZE = 1 << 31
MAX_HIDDEN_SIZE = 65_536
MAX_FFN_SIZE = 524_288
MAX_HEADS = 1_024
MAX_VOCAB_SIZE = 2_000_000
MAX_CONTEXT_LENGTH = 1_048_576
MAX_ROPE_FACTOR = 1_024
MAX_PARAMETERS = 10_000_000_000_000
MAX_LORA_RANK = 4_096
MAX_BATCH_SIZE = 65_536
MAX_PROCESSES = 1_024
MAX_ACCUMULATION = 65_536
MAX_TOKENS_PER_STEP = 1_073_741_824
MAX_EPOCHS = 100_000
MAX_STEPS = 1_000_000_000
MAX_LEARNING_RATE = 10
MAX_WEIGHT_DECAY = 1_000
MAX_CLIP_NORM = 1_000_000
# Something has to be left to train on.
MAX_EVAL_FRACTION = 0.5
MAX_MIXED_DATASETS = 20
# Each example of a dataset is kept as often as it is trained in an epoch.
MAX_DATASET_WEIGHT = 100
MAX_PROMPTS = 1_000
# Answered again and again while a run trains.
MAX_SAMPLE_PROMPTS = 8
MAX_SAMPLE_PROMPT_CHARACTERS = 2_000
MAX_SAMPLE_TOKENS = 512
MAX_PROMPT_CHARACTERS = 20_000
MAX_AVERAGED_CHECKPOINTS = 100
