import joblib
import pandas as pd
from sklearn.datasets import fetch_california_housing
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import train_test_split

data = fetch_california_housing()
x_train, x_test, y_train, y_test = train_test_split(data.data, data.target)
model = RandomForestRegressor(n_estimators=500, n_jobs=-1)
model.fit(x_train, y_train)
print(model.score(x_test, y_test))
joblib.dump(model, "forest.joblib")
