import pandas as pd
import xgboost as xgb

frame = pd.read_csv("https://example.org/data/clicks.csv")
model = xgb.XGBClassifier(n_estimators=2000, max_depth=8, device="cuda")
model.fit(frame.drop(columns="label"), frame["label"])
model.save_model("clicks.json")
