"""What tests share: tiny encoders and data, planned recipes, servers, damages."""
