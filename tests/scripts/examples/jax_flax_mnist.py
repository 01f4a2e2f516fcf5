import jax
import jax.numpy as jnp
import optax
import orbax.checkpoint as ocp
import tensorflow_datasets as tfds
from flax import linen as nn
from flax.training import train_state

batch_size = 128
num_epochs = 10


class CNN(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(features=32, kernel_size=(3, 3))(x))
        return nn.Dense(features=10)(x.reshape((x.shape[0], -1)))


@jax.jit
def train_step(state, batch):
    def loss_fn(params):
        logits = state.apply_fn({"params": params}, batch["image"])
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean()

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


data = tfds.load("mnist", split="train")
checkpointer = ocp.PyTreeCheckpointer()
for epoch in range(num_epochs):
    for batch in batches(data, batch_size):
        state, loss = train_step(state, batch)
    print(f"epoch {epoch} loss {loss:.4f}")
    checkpointer.save(f"/tmp/flax/{epoch}", state)
