"""RoutePack: expert placement and certified data packing for mixture-of-experts reinforcement learning."""
