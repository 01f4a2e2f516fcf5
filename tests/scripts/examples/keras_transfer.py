import keras
import tensorflow_datasets as tfds

keras.mixed_precision.set_global_policy("mixed_float16")
train = tfds.load("oxford_iiit_pet", split="train", as_supervised=True).batch(64)
base = keras.applications.ResNet50(include_top=False, weights="imagenet")
model = keras.Sequential([base, keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(37)])
model.compile(optimizer=keras.optimizers.Adam(1e-4), loss="sparse_categorical_crossentropy")
EPOCHS = 10
model.fit(train, epochs=EPOCHS)
model.save("pets.keras")
