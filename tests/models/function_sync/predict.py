def predict(text: str = "x") -> str:
    return f"sync {text}"
