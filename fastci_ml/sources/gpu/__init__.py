"""GPU readings: devices, what is visible, who holds them, arithmetic of windows."""
