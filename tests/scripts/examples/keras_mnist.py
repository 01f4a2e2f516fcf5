from tensorflow import keras
from tensorflow.keras import layers

(x_train, y_train), (x_test, y_test) = keras.datasets.mnist.load_data()
x_train = x_train.astype("float32") / 255
model = keras.Sequential(
    [
        keras.Input(shape=(28, 28, 1)),
        layers.Conv2D(32, kernel_size=(3, 3), activation="relu"),
        layers.MaxPooling2D(pool_size=(2, 2)),
        layers.Flatten(),
        layers.Dense(10, activation="softmax"),
    ]
)
model.compile(loss="sparse_categorical_crossentropy", optimizer="adam", metrics=["accuracy"])
board = keras.callbacks.TensorBoard(log_dir="./logs")
saver = keras.callbacks.ModelCheckpoint("best.keras", save_best_only=True)
model.fit(x_train, y_train, batch_size=128, epochs=15, validation_split=0.1, callbacks=[board, saver])
