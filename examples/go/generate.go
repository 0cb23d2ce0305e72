package main

//go:generate npx buf generate
